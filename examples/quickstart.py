import asyncio

from pydantic import BaseModel

from retoma import App, Items, Pipeline, testing


class Brief(BaseModel):
    topic: str


article = Pipeline("article", inputs=Brief, title="{topic}")


@article.step
async def outline(topic: str) -> list[str]:
    return [f"What is {topic}?", f"Who needs {topic}?"]


@article.each(outline)
def section(heading: str) -> str:
    return f"{heading} It depends."


@article.step
def page(topic: str, section: Items[str]) -> str:
    return " ".join([f"On {topic}.", *section])


async def main() -> None:
    async with testing.sandbox(App("quickstart", pipelines=[article])) as sandbox:
        print((await sandbox.run(article, {"topic": "tea"})).results["page"])


if __name__ == "__main__":
    asyncio.run(main())

# prints: On tea. What is tea? It depends. Who needs tea? It depends.
