"""Run `each` over two lists, once for every combination; the key of a pair is both keys, joined by `|`."""

import asyncio

from pydantic import BaseModel

from retoma import App, Items, Pipeline, testing


class Story(BaseModel):
    scenes: list[str]
    languages: list[str]


story = Pipeline("story", inputs=Story)


@story.each("scenes", "languages")  # names of inputs that are lists; steps work too
def narration(scene: str, language: str) -> str:
    return f"{scene} in {language}"


@story.step
def book(narration: Items[str]) -> dict[str, str]:
    return narration.by_key


app = App("pairs", pipelines=[story])


async def main() -> None:
    async with testing.sandbox(app) as sandbox:
        run = await sandbox.run(story, {"scenes": ["dawn", "dusk"], "languages": ["pt", "en"]})
        print(*run.results["book"].items(), sep="\n")


if __name__ == "__main__":
    asyncio.run(main())

# prints: ('dawn|pt', 'dawn in pt')
# prints: ('dawn|en', 'dawn in en')
# prints: ('dusk|pt', 'dusk in pt')
# prints: ('dusk|en', 'dusk in en')
