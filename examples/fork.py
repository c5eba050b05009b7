"""Start a new run from the results of an old one: with other inputs, only what depends on them runs."""

import asyncio

from pydantic import BaseModel

from retoma import App, Pipeline, testing


class Brief(BaseModel):
    topic: str
    tone: str = "calm"


article = Pipeline("article", inputs=Brief)


@article.step
def research(topic: str) -> str:
    print("researched", topic)
    return f"facts on {topic}"


@article.step
def draft(research: str, tone: str) -> str:
    return f"{tone} {research}"


app = App("fork", pipelines=[article])


async def main() -> None:
    async with testing.sandbox(app) as sandbox:
        run = await sandbox.run(article, {"topic": "tea"})
        fork = await sandbox.client.runs.fork(run.id, {"tone": "bold"})
        await sandbox.work()
        for one in (run, fork):
            print((await sandbox.client.runs.get_results(one.id))["draft"])


if __name__ == "__main__":
    asyncio.run(main())

# prints: researched tea
# prints: calm facts on tea
# prints: bold facts on tea
