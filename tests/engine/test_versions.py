"""Living with code changes: a run keeps its version's shape, and runs with today's functions."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Callable
from datetime import timedelta
from typing import Any

import pytest

from retoma import Context, Items, Pipeline
from retoma.engine.versions import register
from retoma.worker.served_versions import ServedVersions
from tests.conftest import OpenSandbox
from tests.engine.builders import codes, rows, run_claims, run_next, state, states, value


def yesterday() -> Pipeline:
    pipeline = Pipeline("article")

    @pipeline.step
    async def outline() -> str:
        return "old outline"

    @pipeline.step
    async def draft(outline: str) -> str:
        return f"old draft of {outline}"

    return pipeline


async def test_the_same_shape_is_one_version_and_another_shape_another(open_sandbox: OpenSandbox) -> None:
    today = yesterday()

    @today.step
    async def summary(draft: str) -> str:
        return draft[:3]

    async with open_sandbox(yesterday()) as sandbox:
        numbers = [await register(sandbox.database, pipeline) for pipeline in (yesterday(), yesterday(), today)]
    assert numbers[0] == numbers[1] != numbers[2]


async def test_processes_that_store_a_new_version_at_once_agree_on_its_number(open_sandbox: OpenSandbox) -> None:
    async with open_sandbox(yesterday()) as sandbox:
        numbers = await asyncio.gather(*(register(sandbox.database, yesterday()) for _ in range(4)))
        assert len(set(numbers)) == 1
        assert await value(sandbox, "select count(*) from retoma.steps") == 2


async def test_an_open_run_keeps_its_shape_and_runs_todays_functions(open_sandbox: OpenSandbox) -> None:
    today = Pipeline("article")

    @today.step
    async def outline() -> str:
        return "new outline"

    @today.step
    async def draft(outline: str) -> str:
        return f"new draft of {outline}"

    @today.step
    async def summary(draft: str) -> str:
        return f"summary of {draft}"

    async with open_sandbox(yesterday()) as sandbox, sandbox.manual_worker() as hands:
        begun = (await sandbox.client.start("article")).id
        await run_next(hands, "outline")
    async with open_sandbox(today) as sandbox:
        new = await sandbox.run("article")
        assert await state(sandbox, begun) == "completed"
        assert await sandbox.client.runs.get_results(begun) == {
            "outline": "old outline",
            "draft": "new draft of old outline",
        }
    assert new.results["summary"] == "summary of new draft of new outline"


def article_of(*steps: str, called: list[str]) -> Pipeline:
    """Each of its steps follows the one before."""
    pipeline = Pipeline("article")
    for number, step in enumerate(steps):

        def work(*, ctx: Context) -> None:
            called.append(ctx.step)

        work.__name__ = step
        pipeline.step(after=steps[:number][-1:])(work)
    return pipeline


@pytest.mark.parametrize(
    ("today", "done"),
    [
        (["facts", "draft", "check", "post"], ["draft", "post"]),
        (["facts", "post"], []),
        (["facts", "post", "draft"], ["draft", "post"]),
    ],
    ids=["adds", "removes", "moves"],
)
async def test_a_release_that_adds_removes_or_moves_steps_leaves_a_run_at_the_step_it_was_at(
    open_sandbox: OpenSandbox, today: list[str], done: list[str]
) -> None:
    called: list[str] = []
    async with (
        open_sandbox(article_of("facts", "draft", "post", called=[])) as sandbox,
        sandbox.manual_worker() as hands,
    ):
        run = (await sandbox.client.start("article")).id
        await run_next(hands, "facts")
        before = await states(sandbox, run)
    async with open_sandbox(article_of(*today, called=called)) as sandbox:
        assert await states(sandbox, run) == before
        await sandbox.work(advance_clock=False)
        after = await states(sandbox, run)
    assert called == done
    assert after == before | dict.fromkeys(done, "succeeded")


async def test_a_worker_of_yesterdays_code_goes_on_with_yesterdays_runs_only(open_sandbox: OpenSandbox) -> None:
    today = yesterday()

    @today.step
    async def summary(draft: str) -> str:
        return draft[:3]

    async with open_sandbox(yesterday()) as old, old.manual_worker() as hands, open_sandbox(today) as new:
        await new.client.start("article")
        (version,) = {run.version for run in await new.client.runs.list()}
        assert await hands.claim(10) == [], "its version was stored after this worker had looked"
        begun = await old.client.start("article")
        (claim,) = await hands.claim(10)
        assert (claim.run, claim.version == version) == (begun.id, False)


async def test_a_job_whose_step_is_gone_waits_with_that_cause_and_is_done_when_it_is_back(
    open_sandbox: OpenSandbox,
) -> None:
    without_draft = Pipeline("article")

    @without_draft.step
    async def outline() -> str:
        return "outline"

    async with open_sandbox(yesterday()) as sandbox, sandbox.manual_worker() as hands:
        run = (await sandbox.client.start("article")).id
        await run_next(hands, "outline")
    async with open_sandbox(without_draft) as sandbox, sandbox.manual_worker() as hands:
        now = await sandbox.clock.now()
        await run_next(hands, "draft")
        (job,) = (job for job in await sandbox.client.runs.list_jobs(run) if job.step == "draft")
        assert (job.state, job.code, job.attempt) == ("ready", "UNDEFINED_STEP", 0)
        assert job.ready_at is not None
        assert job.ready_at > now
        assert await state(sandbox, run) == "running"
    async with open_sandbox(yesterday()) as sandbox:
        await sandbox.clock.advance(timedelta(minutes=5))
        await sandbox.work()
        assert await state(sandbox, run) == "completed"


async def test_a_successor_that_stays_with_a_worker_which_does_not_define_it_goes_back(
    open_sandbox: OpenSandbox,
) -> None:
    without_draft = Pipeline("article")

    @without_draft.step
    async def outline() -> str:
        return "outline"

    async with open_sandbox(yesterday()) as sandbox:
        run = (await sandbox.client.start("article")).id
    async with open_sandbox(without_draft) as sandbox, sandbox.manual_worker() as hands:
        kept = await hands.record_outcomes(await hands.attempt(await hands.claim()), limit=1)
        await run_claims(hands, kept, "draft")
        assert (await codes(sandbox, run))["draft"] == "UNDEFINED_STEP"


async def test_a_result_that_older_runs_do_not_have_is_taken_only_with_a_default(open_sandbox: OpenSandbox) -> None:
    def with_tone(draft: Callable[..., Any]) -> Pipeline:
        pipeline = Pipeline("article")

        @pipeline.step
        async def outline() -> str:
            return "outline"

        @pipeline.step
        async def tone() -> str:
            return "formal"

        draft.__name__ = "draft"
        pipeline.step(draft)
        return pipeline

    async def requires(outline: str, tone: str) -> str:
        return f"{tone} {outline}"

    async def may_have(outline: str, tone: str = "any") -> str:
        return f"{tone} {outline}"

    async with open_sandbox(yesterday()) as sandbox, sandbox.manual_worker() as hands:
        run = (await sandbox.client.start("article")).id
        await run_next(hands, "outline")
    async with open_sandbox(with_tone(requires)) as sandbox:
        await sandbox.work(advance_clock=False)
        assert (await codes(sandbox, run))["draft"] == "UNDEFINED_STEP"
    async with open_sandbox(with_tone(may_have)) as sandbox:
        await sandbox.clock.advance(timedelta(minutes=5))
        await sandbox.work()
        assert (await sandbox.client.runs.get_results(run))["draft"] == "any old outline"


async def test_a_step_that_has_lost_its_default_is_skipped_where_older_runs_lack_the_result(
    open_sandbox: OpenSandbox,
) -> None:
    def with_mix(mix: Callable[..., Any]) -> Pipeline:
        pipeline = Pipeline("film")

        @pipeline.step(when=lambda: False)
        async def song() -> str:
            return "la la"

        mix.__name__ = "mix"
        pipeline.step(mix)
        return pipeline

    async def with_default(song: str = "silence") -> str:
        return song

    async def without_default(song: str) -> str:
        raise AssertionError("run without its song")

    async with open_sandbox(with_mix(with_default)) as sandbox, sandbox.manual_worker() as hands:
        run = (await sandbox.client.start("film")).id
        await run_next(hands, "song")
        assert await states(sandbox, run) == {"song": "skipped", "mix": "ready"}
    async with open_sandbox(with_mix(without_default)) as sandbox:
        await sandbox.work()
        assert await states(sandbox, run) == {"song": "skipped", "mix": "skipped"}
        assert await state(sandbox, run) == "completed"


async def test_a_result_that_is_no_longer_taken_is_left_aside(open_sandbox: OpenSandbox) -> None:
    today = Pipeline("article")

    @today.step
    async def outline() -> str:
        return "outline"

    @today.step
    async def draft() -> str:
        return "draft of nothing"

    async with open_sandbox(yesterday()) as sandbox, sandbox.manual_worker() as hands:
        run = (await sandbox.client.start("article")).id
        await run_next(hands, "outline")
    async with open_sandbox(today) as sandbox:
        await sandbox.work()
        assert (await sandbox.client.runs.get_results(run))["draft"] == "draft of nothing"


def fan_out() -> Pipeline:
    pipeline = Pipeline("labels")

    @pipeline.step
    async def documents() -> list[str]:
        return ["a", "b"]

    @pipeline.each(documents)
    async def label(document: str) -> str:
        return document

    @pipeline.step
    async def report(label: Items[str]) -> int:
        return len(label)

    return pipeline


async def test_a_run_never_loses_its_items_because_todays_code_does_not_fan_out(open_sandbox: OpenSandbox) -> None:
    plain = Pipeline("labels")

    @plain.step
    async def documents() -> list[str]:
        return ["a", "b"]

    @plain.step
    async def report(documents: list[str]) -> int:
        return -1

    async with open_sandbox(fan_out()) as sandbox:
        run = (await sandbox.client.start("labels")).id
    async with open_sandbox(plain) as sandbox:
        await sandbox.work(advance_clock=False)
        assert (await codes(sandbox, run))["documents"] == "UNDEFINED_STEP"
        assert await state(sandbox, run) == "running"
    async with open_sandbox(fan_out()) as sandbox:
        await sandbox.clock.advance(timedelta(minutes=5))
        await sandbox.work()
        assert (await sandbox.client.runs.get_results(run))["report"] == 2


async def test_a_step_that_went_over_items_and_is_plain_today_is_not_run(open_sandbox: OpenSandbox) -> None:
    plain = Pipeline("labels")

    @plain.step
    async def documents() -> list[str]:
        return ["a", "b"]

    @plain.step
    async def label(documents: list[str]) -> str:
        raise AssertionError("run for one item as if for all")

    @plain.step
    async def report(label: str) -> int:
        raise AssertionError("given items as if they were one result")

    async with open_sandbox(fan_out()) as sandbox, sandbox.manual_worker() as hands:
        run = (await sandbox.client.start("labels")).id
        await run_next(hands, "documents")
    async with open_sandbox(plain) as sandbox, sandbox.manual_worker() as hands:
        await run_next(hands, "label:a", "label:b")
        assert (await codes(sandbox, run))["label:a"] == "UNDEFINED_STEP"
    async with open_sandbox(fan_out()) as sandbox, sandbox.manual_worker() as hands:
        await sandbox.clock.advance(timedelta(minutes=5))
        await rows(sandbox, "select retoma.release_due_jobs(10)")
        await run_next(hands, "label:a", "label:b")
    async with open_sandbox(plain) as sandbox, sandbox.manual_worker() as hands:
        await run_next(hands, "report")
        assert (await states(sandbox, run))["report"] == "ready"
        assert (await codes(sandbox, run))["report"] == "UNDEFINED_STEP"


async def test_the_work_of_another_application_is_left_to_it(open_sandbox: OpenSandbox) -> None:
    async with open_sandbox(fan_out()) as sandbox:
        await sandbox.client.start("labels")
    async with open_sandbox(yesterday()) as sandbox, sandbox.manual_worker() as hands:
        run = (await sandbox.client.start("article")).id
        assert [claim.run for claim in await hands.claim(10)] == [run]


@pytest.mark.parametrize("committed_late", [False, True])
async def test_a_worker_learns_versions_that_others_store(open_sandbox: OpenSandbox, committed_late: bool) -> None:
    newest = yesterday()

    @newest.step
    async def summary(draft: str) -> str:
        return draft[:3]

    async with open_sandbox(newest) as sandbox:
        catalog = ServedVersions(sandbox.app)
        connection = await sandbox.database.connect()
        transaction = connection.transaction()
        await transaction.start()
        late = await read_stored_graph(connection, yesterday()) if committed_late else None
        await catalog.register_and_load(sandbox.database)
        await transaction.commit()
        number = late or await register(sandbox.database, yesterday())
        assert number not in catalog.version_numbers
        assert not committed_late or number < max(catalog.version_numbers), (
            "numbers are not given in the order of commits"
        )
        await catalog.refresh(sandbox.database)
        assert number in catalog.version_numbers
        await connection.close()


async def read_stored_graph(connection: Any, pipeline: Pipeline) -> int:
    graph = pipeline.graph
    number: int = await connection.fetchval(
        "insert into retoma.versions (pipeline, digest, graph, sinks) values ($1, $2, $3, 1) returning id",
        graph.pipeline,
        graph.digest,
        json.dumps(graph.to_json()),
    )
    return number
