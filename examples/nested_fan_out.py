"""Nested fan-out: the items of a book are its chapters, and each chapter has items too. Each level has its own join."""

import asyncio

from pydantic import BaseModel

from retoma import App, Context, Items, Pipeline, testing


class Chapter(BaseModel):
    title: str = "The storm"


chapter = Pipeline("chapter", inputs=Chapter, title="{title}")


@chapter.step
def scenes(title: str) -> list[str]:
    """Return the inner items, which are only known now."""
    return [f"{title}, scene {number}" for number in (1, 2)]


@chapter.each(scenes)
def scene_text(scene: str) -> str:
    return scene.upper()


@chapter.step
def chapter_text(scene_text: Items[str]) -> str:
    """Join the inner level, as soon as all scenes of this chapter are written."""
    return " | ".join(scene_text)


class Book(BaseModel):
    chapters: list[str] = ["The storm", "The island"]


book = Pipeline("book", inputs=Book)


@book.each("chapters")
async def written_chapter(chapter_title: str, *, ctx: Context) -> str:
    results = await ctx.run_child(chapter, {"title": chapter_title})  # fans out again
    return str(results["chapter_text"])


@book.step
def manuscript(written_chapter: Items[str]) -> list[str]:
    """Join the outer level, once all chapters are joined."""
    return list(written_chapter)


app = App("nested_fan_out", pipelines=[chapter, book])


async def main() -> None:
    async with testing.sandbox(app) as sandbox:
        run = await sandbox.run(book)
        for line in run.results["manuscript"]:
            print(line)


if __name__ == "__main__":
    asyncio.run(main())

# prints: THE STORM, SCENE 1 | THE STORM, SCENE 2
# prints: THE ISLAND, SCENE 1 | THE ISLAND, SCENE 2
