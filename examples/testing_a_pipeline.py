"""Unit-test a step by calling it; the sandbox runs the whole pipeline, including its delays, in milliseconds."""

import asyncio
from datetime import timedelta

from retoma import App, FailedItem, Items, Pipeline, Retry, testing

survey = Pipeline("survey")


@survey.step
def cities() -> list[str]:
    return ["Faro", "Porto"]


@survey.each(cities, retry=Retry(2, delays=[3600], jitter=0))
def answer(city: str, *, post: dict[str, list[str]]) -> str:
    return post[city].pop()  # Faro's letter arrives for the second attempt, an hour later


@survey.step
def tally(answer: Items[str]) -> str:
    return f"{len(answer)} of {answer.total}"


async def main() -> None:
    assert tally(Items(["yes"], failures=[FailedItem("Porto", "ERROR")])) == "1 of 2"
    post: dict[str, list[str]] = {"Faro": [], "Porto": ["no"]}
    async with testing.sandbox(App("survey", pipelines=[survey], resources={"post": post})) as sandbox:
        started, started_at = await sandbox.client.start(survey), await sandbox.clock.now()
        await sandbox.work(advance_clock=False)
        post["Faro"].append("yes")
        await sandbox.work()
        assert await sandbox.clock.now() - started_at == timedelta(hours=1)
        print(await sandbox.client.runs.get_results(started.id))


if __name__ == "__main__":
    asyncio.run(main())

# prints: {'cities': ['Faro', 'Porto'], 'answer': {'Faro': 'yes', 'Porto': 'no'}, 'tally': '2 of 2'}
