"""Runs from their start to their end."""

from __future__ import annotations

import asyncio
from collections.abc import Iterable
from datetime import datetime, timedelta
from typing import Any
from uuid import UUID, uuid4

import pytest
from pydantic import BaseModel

from retoma import Context, Items, Pipeline, Retry
from retoma.errors import InvalidInput, NotFound
from retoma.states import RunState
from retoma.store import event_stream
from retoma.store.database import Database
from tests.conftest import OpenSandbox
from tests.engine.builders import names, run_claims, run_next, state, states


class Brief(BaseModel):
    topic: str = "tea"
    count: int = 3


class Outline(BaseModel):
    title: str
    parts: list[str]


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
            raise OSError("the provider is unreachable")
        return 42

    async with open_sandbox(pipeline) as sandbox:
        began = await sandbox.clock.now()
        run = await sandbox.run(pipeline)
        assert (await sandbox.clock.now() - began).total_seconds() == 40
    assert run.results == {"answer": 42}


async def test_a_diamond_joins_in_the_step_that_needs_both_sides(open_sandbox: OpenSandbox) -> None:
    pipeline = make_diamond()
    async with open_sandbox(pipeline) as sandbox:
        run = await sandbox.run(pipeline)
    assert run.state == "completed"
    assert run.results["video"] == "script+voice+images"


async def test_a_step_is_ready_only_when_all_dependencies_have_ended(open_sandbox: OpenSandbox) -> None:
    pipeline = make_diamond()
    async with open_sandbox(pipeline) as sandbox, sandbox.manual_worker() as worker:
        run = (await sandbox.client.start(pipeline)).id
        await run_next(worker, "script")
        sides = await worker.claim(10)
        assert names(sides) == ["images", "voice"]
        await run_claims(worker, sides, "voice")
        assert (await states(sandbox, run))["video"] == "waiting"
        assert await worker.claim(10) == []
        await run_claims(worker, sides, "images")
        assert (await states(sandbox, run))["video"] == "ready"


async def test_both_sides_of_a_diamond_may_end_in_one_call(open_sandbox: OpenSandbox) -> None:
    pipeline = make_diamond()
    async with open_sandbox(pipeline) as sandbox, sandbox.manual_worker() as worker:
        await sandbox.client.start(pipeline)
        await run_next(worker, "script")
        await run_next(worker, "images", "voice")
        assert names(await worker.claim(10)) == ["video"]


async def test_a_step_receives_the_result_of_an_implied_dependency(open_sandbox: OpenSandbox) -> None:
    pipeline = Pipeline("implied")

    @pipeline.step
    async def first() -> int:
        return 1

    @pipeline.step
    async def second(first: int) -> int:
        return first + 1

    @pipeline.step
    async def third(first: int, second: int) -> list[int]:
        return [first, second]

    async with open_sandbox(pipeline) as sandbox:
        run = await sandbox.run(pipeline)
    assert run.results["third"] == [1, 2]


async def test_parameters_are_passed_by_name_in_any_order(open_sandbox: OpenSandbox) -> None:
    pipeline = Pipeline("order", inputs=Brief)

    @pipeline.step
    async def one() -> str:
        return "one"

    @pipeline.step
    async def two() -> str:
        return "two"

    @pipeline.step
    async def three(two: str, topic: str, one: str) -> list[str]:
        return [one, two, topic]

    async with open_sandbox(pipeline) as sandbox:
        run = await sandbox.run(pipeline)
    assert run.results["three"] == ["one", "two", "tea"]


async def test_after_lets_a_step_wait_without_taking_a_result(open_sandbox: OpenSandbox) -> None:
    pipeline = Pipeline("order")

    @pipeline.step
    async def upload() -> None: ...

    @pipeline.step(after=upload)
    async def announcement() -> str:
        return "out now"

    async with open_sandbox(pipeline) as sandbox, sandbox.manual_worker() as worker:
        await sandbox.client.start(pipeline)
        await run_next(worker, "upload")
        await run_next(worker, "announcement")


async def test_none_is_a_result_like_any_other(open_sandbox: OpenSandbox) -> None:
    pipeline = Pipeline("nothing")

    @pipeline.step
    async def answer() -> str | None:
        return None

    @pipeline.step
    async def heard(answer: str | None = "the default") -> bool:
        return answer is None

    async with open_sandbox(pipeline) as sandbox:
        run = await sandbox.run(pipeline)
    assert run.results == {"answer": None, "heard": True}


async def test_models_pass_between_steps(open_sandbox: OpenSandbox) -> None:
    pipeline = Pipeline("models")

    @pipeline.step
    async def outline() -> Outline:
        return Outline(title="Tea", parts=["leaf", "water"])

    @pipeline.step
    async def draft(outline: Outline) -> str:
        return f"{outline.title}: {outline.parts[1]}"

    async with open_sandbox(pipeline) as sandbox:
        run = await sandbox.run(pipeline)
    assert run.results["draft"] == "Tea: water"


async def test_any_text_survives_as_a_result(open_sandbox: OpenSandbox) -> None:
    pipeline = Pipeline("text")
    strange = 'nul \0, quote ", é, 漢, \N{GRINNING FACE}, \x7f'

    @pipeline.step
    async def text() -> str:
        return strange

    @pipeline.step
    async def same(text: str) -> bool:
        return text == strange

    async with open_sandbox(pipeline) as sandbox:
        run = await sandbox.run(pipeline)
    assert run.results["same"] is True


async def test_a_run_continues_until_its_last_branch_has_ended(open_sandbox: OpenSandbox) -> None:
    pipeline = Pipeline("branches")

    @pipeline.step
    async def left() -> int:
        return 1

    @pipeline.step
    async def right() -> int:
        return 2

    async with open_sandbox(pipeline) as sandbox, sandbox.manual_worker() as worker:
        run = (await sandbox.client.start(pipeline)).id
        claims = await worker.claim(10)
        await run_claims(worker, claims, "left")
        assert await state(sandbox, run) == "running"
        await run_claims(worker, claims, "right")
        assert await state(sandbox, run) == "completed"


async def test_a_successor_kept_by_its_worker_has_all_its_inputs(open_sandbox: OpenSandbox) -> None:
    pipeline = Pipeline("kept", inputs=Brief)

    @pipeline.step
    async def outline(count: int) -> list[int]:
        return list(range(count))

    @pipeline.each(outline)
    async def part(part_number: int, topic: str) -> str:
        return f"{topic} {part_number}"

    @pipeline.each(outline)
    async def checked(part: str, topic: str, number: int) -> str:
        return f"{part} ({number} of {topic})"

    async with open_sandbox(pipeline) as sandbox, sandbox.manual_worker() as worker:
        run = (await sandbox.client.start(pipeline, {"topic": "tea", "count": 2})).id
        claims = await worker.claim(1)
        for step in ("part", "checked"):
            claims = await worker.record_outcomes(await worker.attempt(claims), limit=7)
            assert names(claims) == [f"{step}:0", f"{step}:1"]
        await run_claims(worker, claims)
        assert {job.item: job.output for job in await sandbox.client.runs.list_jobs(run) if job.step == "checked"} == {
            "0": "tea 0 (0 of tea)",
            "1": "tea 1 (1 of tea)",
        }


async def test_a_step_knows_its_attempt_and_has_its_declared_resources(open_sandbox: OpenSandbox) -> None:
    pipeline = Pipeline("context")
    seen: list[Context] = []

    @pipeline.step(retry=Retry(1, delays=[1]))
    async def answer(*, ctx: Context, llm: dict[str, str]) -> str:
        seen.append(ctx)
        if ctx.attempt == 1:
            raise OSError("once more")
        return llm["model"]

    async with open_sandbox(pipeline, resources={"llm": {"model": "small"}}) as sandbox:
        run = await sandbox.run(pipeline, tenant="channel")
    first, second = seen
    assert (first.run, first.tenant, first.pipeline, first.step) == (run.id, "channel", "context", "answer")
    assert (first.attempt, first.maybe_done, second.attempt, second.maybe_done) == (1, False, 2, True)
    assert first.effect_key == second.effect_key == f"{run.id}:answer::1"
    assert run.results == {"answer": "small"}


async def test_a_step_reads_the_databases_time(open_sandbox: OpenSandbox) -> None:
    pipeline = Pipeline("clock")

    @pipeline.step
    async def read(*, ctx: Context) -> datetime:
        return await ctx.now()

    async with open_sandbox(pipeline) as sandbox:
        now = await sandbox.clock.now()
        assert (await sandbox.run(pipeline)).results == {"read": now.isoformat().replace("+00:00", "Z")}


@pytest.mark.parametrize("values", [{"count": "many"}, {"topic": None}])
async def test_an_input_that_its_model_rejects_starts_nothing(
    open_sandbox: OpenSandbox, values: dict[str, Any]
) -> None:
    pipeline = Pipeline("strict", inputs=Brief)

    @pipeline.step
    async def answer(topic: str) -> str:
        return topic

    async with open_sandbox(pipeline) as sandbox:
        with pytest.raises(InvalidInput, match=next(iter(values))):
            await sandbox.client.start(pipeline, values)
        assert await sandbox.client.runs.list() == []


async def test_a_run_that_does_not_exist_is_not_found(open_sandbox: OpenSandbox) -> None:
    pipeline = make_diamond()
    async with open_sandbox(pipeline) as sandbox:
        with pytest.raises(NotFound):
            await sandbox.client.runs.get(uuid4())
        with pytest.raises(NotFound):
            await sandbox.client.runs.cancel(uuid4())


@pytest.mark.parametrize("revision", [0, 2**31])
async def test_an_impossible_revision_is_rejected(open_sandbox: OpenSandbox, revision: int) -> None:
    async with open_sandbox(make_diamond()) as sandbox:
        for probe in (
            sandbox.client.runs.get_results,
            sandbox.client.runs.list_jobs,
            sandbox.client.runs.get_errors,
        ):
            with pytest.raises(InvalidInput, match="a revision is a whole number from 1"):
                await probe(uuid4(), revision=revision)


async def test_a_run_that_nobody_waits_for_any_more_is_not_polled(
    open_sandbox: OpenSandbox, monkeypatch: pytest.MonkeyPatch
) -> None:
    pipeline = make_diamond()
    looked_for: set[UUID] = set()
    get_states = event_stream.get_run_states

    async def noted(database: Database, waiting: Iterable[UUID], **options: Any) -> dict[UUID, RunState]:
        looked_for.update(waiting)
        return await get_states(database, waiting, **options)

    async with open_sandbox(pipeline) as sandbox:
        previous, run = [(await sandbox.client.start(pipeline)).id for _ in range(2)]
        waiting = asyncio.create_task(sandbox.client.wait(run))
        with pytest.raises(TimeoutError):
            await sandbox.client.wait(previous, timedelta(0))
        monkeypatch.setattr(event_stream, "get_run_states", noted)
        await sandbox.work()
        assert (await waiting).is_over
    assert looked_for == {run}


def make_diamond() -> Pipeline:
    pipeline = Pipeline("diamond")

    @pipeline.step
    async def script() -> str:
        return "script"

    @pipeline.step
    async def voice(script: str) -> str:
        return f"{script}+voice"

    @pipeline.step
    async def images(script: str) -> str:
        return "images"

    @pipeline.step
    async def video(voice: str, images: str) -> str:
        return f"{voice}+{images}"

    return pipeline
