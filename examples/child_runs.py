"""A step runs another pipeline for each of its items, and waits for these child runs without holding a worker."""

import asyncio

from pydantic import BaseModel

from retoma import App, Context, Items, Pipeline, testing


class Topic(BaseModel):
    topic: str = "tea"


article = Pipeline("article", inputs=Topic)


@article.step
def outline(topic: str) -> list[str]:
    return [f"What {topic} is", f"Who needs {topic}"]


@article.step
def text(outline: list[str]) -> str:
    return ". ".join(outline)


class Issue(BaseModel):
    topics: list[str] = ["tea", "coffee"]


magazine = Pipeline("magazine", inputs=Issue)


@magazine.each("topics")
async def page(topic: str, *, ctx: Context) -> str:
    results = await ctx.run_child(article, {"topic": topic})  # the results of its last steps
    return str(results["text"])


@magazine.step
def issue(page: Items[str]) -> list[str]:
    return list(page)


app = App("child_runs", pipelines=[article, magazine])


async def main() -> None:
    async with testing.sandbox(app) as sandbox:
        run = await sandbox.run(magazine)
        print(run.state, run.results["issue"])
        print(await sandbox.client.runs.count_children(run.id))


if __name__ == "__main__":
    asyncio.run(main())

# prints: completed ['What tea is. Who needs tea', 'What coffee is. Who needs coffee']
# prints: {<RunState.COMPLETED: 'completed'>: 2}
