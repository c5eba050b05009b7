from __future__ import annotations

from typing import Any

from retoma import GiveUp, Items, Pipeline, Retry, all_finished, seconds
from retoma.states import JobState
from tests.conftest import OpenSandbox
from tests.engine.builders import run_claims, run_next

KEYS = ("b", "a", "c", "bad", "skip")


class World:
    def __init__(self) -> None:
        self.is_bad = True

    def label(self, text: str) -> str:
        if text == "BAD" and self.is_bad:
            raise ValueError("no label for this")
        return f"label of {text}"


def labels(world: World, retry: Retry | None = None) -> Pipeline:
    """Documents in a custom order; one is skipped, one fails at its second step."""
    pipeline = Pipeline("labels", retry=retry or Retry(0))

    @pipeline.step
    def documents() -> list[dict[str, str]]:
        return [{"key": key} for key in KEYS]

    @pipeline.each(documents, key="key", when=lambda document: document["key"] != "skip")
    def text(document: dict[str, str]) -> str:
        return document["key"].upper()

    @pipeline.each(documents)
    def label(text: str) -> str:
        return world.label(text)

    @pipeline.step(proceed_when=all_finished(allow_failed=1.0))
    def report(label: Items[str]) -> int:
        return len(list(label))

    return pipeline


def format_items(items: list[Any]) -> dict[str, tuple[str, str]]:
    return {item.item: (str(item.state), item.step) for item in items}


async def test_an_item_has_one_state_across_all_its_steps(open_sandbox: OpenSandbox) -> None:
    pipeline = labels(World())
    async with open_sandbox(pipeline) as sandbox, sandbox.manual_worker() as worker:
        run = (await sandbox.client.start(pipeline)).id
        assert await sandbox.client.runs.list_items(run, "documents") == []
        await run_next(worker, "documents")
        found = format_items(await sandbox.client.runs.list_items(run, "documents"))
        assert found == dict.fromkeys(KEYS, ("ready", "text"))
        claims = await worker.claim(100)
        assert format_items(await sandbox.client.runs.list_items(run, "documents"))["a"] == ("running", "text")
        await run_claims(worker, claims)
        found = format_items(await sandbox.client.runs.list_items(run, "documents"))
        assert found["a"] == ("running", "text")
        assert found["skip"] == ("skipped", "label")
        await run_next(worker)
        found = format_items(await sandbox.client.runs.list_items(run, "documents"))
        assert found == dict.fromkeys("bac", ("succeeded", "label")) | {
            "bad": ("failed", "label"),
            "skip": ("skipped", "label"),
        }


async def test_items_are_listed_in_order_by_page(open_sandbox: OpenSandbox) -> None:
    pipeline = labels(World())
    async with open_sandbox(pipeline) as sandbox:
        run = await sandbox.run(pipeline)
        first = await sandbox.client.runs.list_items(run.id, "documents", limit=2)
        rest = await sandbox.client.runs.list_items(run.id, "documents", after=first[-1].position)
        assert [item.item for item in [*first, *rest]] == list(KEYS)
        assert [item.value for item in first] == [{"key": "b"}, {"key": "a"}]
        assert [item.output for item in first] == ["label of B", "label of A"]


async def test_items_are_found_by_state_by_part_of_the_key_and_by_key(open_sandbox: OpenSandbox) -> None:
    pipeline = labels(World())
    async with open_sandbox(pipeline) as sandbox:
        run = (await sandbox.run(pipeline)).id

        async def found(**query: Any) -> list[str]:
            return [item.item for item in await sandbox.client.runs.list_items(run, "documents", **query)]

        assert await found(states=[JobState.FAILED]) == ["bad"]
        assert await found(states=[JobState.SUCCEEDED, JobState.SKIPPED]) == ["b", "a", "c", "skip"]
        assert await found(search="A") == ["a", "bad"]
        assert await found(search="%") == []
        assert await found(only=["c", "a", "none"]) == ["a", "c"]
        assert await found(only=[]) == []
        assert await sandbox.client.runs.list_items(run, "nothing") == []


async def test_an_item_shows_its_last_error_with_its_time_and_number_of_attempts(open_sandbox: OpenSandbox) -> None:
    pipeline = labels(World(), Retry(1, delays=[seconds(30)], jitter=0))
    async with open_sandbox(pipeline) as sandbox:
        began = await sandbox.clock.now()
        run = await sandbox.run(pipeline)
        (bad,) = await sandbox.client.runs.list_items(run.id, "documents", only=["bad"])
        assert (bad.attempt, bad.code, bad.output) == (2, "ERROR", None)
        assert (bad.error["message"], bad.error_at) == ("no label for this", began + seconds(30))
        assert "world.label" in bad.error["stack"]
        (good,) = await sandbox.client.runs.list_items(run.id, "documents", only=["a"])
        assert (good.attempt, good.code, good.error, good.error_at) == (1, None, None, None)


async def test_totals_count_every_item_once_and_name_the_last_one_that_ended(open_sandbox: OpenSandbox) -> None:
    pipeline = labels(World())
    async with open_sandbox(pipeline) as sandbox, sandbox.manual_worker() as worker:
        run = (await sandbox.client.start(pipeline)).id
        totals = await sandbox.client.runs.get_item_totals(run, "documents")
        assert (totals.total, totals.last_item, totals.last_at) == (0, None, None)
        await run_next(worker, "documents")
        texts = await worker.claim(100)
        await run_claims(worker, texts)
        claims = await worker.claim(100)
        await sandbox.clock.advance(seconds(9))
        await run_claims(worker, claims, "label:c")
        totals = await sandbox.client.runs.get_item_totals(run, "documents")
        assert totals.states == {JobState.RUNNING: 3, JobState.SUCCEEDED: 1, JobState.SKIPPED: 1}
        assert (totals.total, totals.last_item, totals.last_at) == (5, "c", await sandbox.clock.now())


async def test_failures_are_counted_by_code(open_sandbox: OpenSandbox) -> None:
    pipeline = labels(World())
    async with open_sandbox(pipeline) as sandbox:
        run = (await sandbox.run(pipeline)).id
        assert await sandbox.client.runs.count_item_codes(run, "documents") == [("ERROR", 1)]
        assert await sandbox.client.runs.count_item_codes(run, "label") == []


async def test_a_rerun_item_has_its_current_position(open_sandbox: OpenSandbox) -> None:
    world = World()
    pipeline = labels(world)
    async with open_sandbox(pipeline) as sandbox:
        run = (await sandbox.run(pipeline)).id
        world.is_bad = False
        await sandbox.client.runs.rerun_failed(run)
        (bad,) = await sandbox.client.runs.list_items(run, "documents", only=["bad"])
        assert (bad.state, bad.step, bad.attempt, bad.error) == ("running", "text", 1, None)
        await sandbox.work()
        (bad,) = await sandbox.client.runs.list_items(run, "documents", only=["bad"])
        assert (bad.state, bad.output, bad.attempt) == ("succeeded", "label of BAD", 1)
        assert (await sandbox.client.runs.get_item_totals(run, "documents")).states[JobState.SUCCEEDED] == 4


async def test_an_edited_result_belongs_to_the_item_and_names_the_person(open_sandbox: OpenSandbox) -> None:
    pipeline = labels(World())
    async with open_sandbox(pipeline) as sandbox:
        run = (await sandbox.run(pipeline)).id
        await sandbox.client.runs.edit(run, "label", "by hand", item="bad", by="ana")
        (bad,) = await sandbox.client.runs.list_items(run, "documents", only=["bad"])
        assert (bad.state, bad.output, bad.author) == ("succeeded", "by hand", "ana")


def unreadable() -> Pipeline:
    """Two documents, of which one cannot be read, and so is never labelled."""
    pipeline = Pipeline("unreadable", retry=Retry(0))

    @pipeline.step
    def documents() -> list[str]:
        return ["a", "b"]

    @pipeline.each(documents)
    def text(document: str) -> str:
        if document == "b":
            raise GiveUp("it cannot be read", code="UNREADABLE")
        return document

    @pipeline.each(documents)
    def label(text: str) -> str:
        return text

    @pipeline.step(proceed_when=all_finished(allow_failed=1.0))
    def report(label: Items[str]) -> list[str]:
        return list(label)

    return pipeline


async def test_an_edited_result_resolves_an_earlier_failure(open_sandbox: OpenSandbox) -> None:
    pipeline = unreadable()
    async with open_sandbox(pipeline) as sandbox:
        run = (await sandbox.run(pipeline)).id
        assert (await sandbox.client.runs.get(run)).state == "completed_with_errors"
        await sandbox.client.runs.edit(run, "label", "by hand", item="b", by="ana")
        await sandbox.work()
        assert (await sandbox.client.runs.get(run)).state == "completed"
        assert (await sandbox.client.runs.get_results(run))["report"] == ["a", "by hand"]
        made = await sandbox.client.runs.rerun_failed(run)
        assert made.jobs == 0
        await sandbox.work()
        (item,) = await sandbox.client.runs.list_items(run, "documents", only=["b"])
        assert (item.state, item.output) == ("succeeded", "by hand")
