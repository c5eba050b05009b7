"""Runs from their start to their end."""

from __future__ import annotations

from pydantic import BaseModel

from retoma import Items, Pipeline, Retry
from tests.conftest import OpenSandbox


class Brief(BaseModel):
    topic: str = "tea"
    count: int = 3


async def test_a_chain_passes_results_from_step_to_step(open_sandbox: OpenSandbox) -> None:
    article = Pipeline("article", inputs=Brief)

    @article.step
    def outline(topic: str) -> list[str]:
        return [topic, "history"]

    @article.step
    async def draft(outline: list[str], topic: str) -> str:
        return f"{topic}: {' and '.join(outline)}"

    async with open_sandbox(article) as sandbox:
        run = await sandbox.run(article, {"topic": "coffee"})
    assert run.state == "completed"
    assert run.results == {"outline": ["coffee", "history"], "draft": "coffee: coffee and history"}


async def test_a_fan_out_of_no_items_joins_at_once(open_sandbox: OpenSandbox) -> None:
    pipeline = Pipeline("empty")

    @pipeline.step
    def documents() -> list[str]:
        return []

    @pipeline.each(documents)
    def label(document: str) -> str:
        return document.upper()

    @pipeline.step
    def report(label: Items[str]) -> int:
        return len(label)

    async with open_sandbox(pipeline) as sandbox:
        run = await sandbox.run(pipeline)
    assert run.state == "completed"
    assert run.results["report"] == 0


async def test_a_retry_waits_its_delay_and_then_succeeds(open_sandbox: OpenSandbox) -> None:
    pipeline = Pipeline("flaky")
    tries = []

    @pipeline.step(retry=Retry(2, delays=[10, 30], jitter=0))
    def answer() -> int:
        tries.append(1)
        if len(tries) < 3:
            raise OSError("the provider is away")
        return 42

    async with open_sandbox(pipeline) as sandbox:
        began = await sandbox.clock.now()
        run = await sandbox.run(pipeline)
        assert (await sandbox.clock.now() - began).total_seconds() == 40
    assert run.results == {"answer": 42}
