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
from tests.conftest import OpenSandbox
from tests.engine.builders import codes, make_served_versions, rows, run_claims, run_next, state, states, value


def make_old_version() -> Pipeline:
    pipeline = Pipeline("article")

    @pipeline.step
    async def outline() -> str:
        return "old outline"

    @pipeline.step
    async def draft(outline: str) -> str:
        return f"old draft of {outline}"

    return pipeline


async def test_the_same_graph_is_one_version_and_another_graph_another(open_sandbox: OpenSandbox) -> None:
    today = make_old_version()

    @today.step
    async def summary(draft: str) -> str:
        return draft[:3]

    async with open_sandbox(make_old_version()) as sandbox:
        numbers = [
            await register(sandbox.database, pipeline) for pipeline in (make_old_version(), make_old_version(), today)
        ]
    assert numbers[0] == numbers[1] != numbers[2]


async def test_processes_that_store_a_new_version_concurrently_agree_on_its_number(open_sandbox: OpenSandbox) -> None:
    async with open_sandbox(make_old_version()) as sandbox:
        numbers = await asyncio.gather(*(register(sandbox.database, make_old_version()) for _ in range(4)))
        assert len(set(numbers)) == 1
        assert await value(sandbox, "select count(*) from retoma.steps") == 2


async def test_an_open_run_keeps_its_graph_and_runs_the_current_functions(open_sandbox: OpenSandbox) -> None:
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

    async with open_sandbox(make_old_version()) as sandbox, sandbox.manual_worker() as worker:
        begun = (await sandbox.client.start("article")).id
        await run_next(worker, "outline")
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
async def test_a_release_that_adds_removes_or_moves_steps_leaves_a_run_at_its_step(
    open_sandbox: OpenSandbox, today: list[str], done: list[str]
) -> None:
    called: list[str] = []
    async with (
        open_sandbox(article_of("facts", "draft", "post", called=[])) as sandbox,
        sandbox.manual_worker() as worker,
    ):
        run = (await sandbox.client.start("article")).id
        await run_next(worker, "facts")
        before = await states(sandbox, run)
    async with open_sandbox(article_of(*today, called=called)) as sandbox:
        assert await states(sandbox, run) == before
        await sandbox.work(advance_clock=False)
        after = await states(sandbox, run)
    assert called == done
    assert after == before | dict.fromkeys(done, "succeeded")


async def test_a_worker_with_old_code_continues_only_runs_of_that_version(open_sandbox: OpenSandbox) -> None:
    today = make_old_version()

    @today.step
    async def summary(draft: str) -> str:
        return draft[:3]

    async with open_sandbox(make_old_version()) as old, old.manual_worker() as worker, open_sandbox(today) as new:
        await new.client.start("article")
        (version,) = {run.version for run in await new.client.runs.list()}
        assert await worker.claim(10) == [], "its version was stored after this worker had looked"
        begun = await old.client.start("article")
        (claim,) = await worker.claim(10)
        assert (claim.run, claim.version == version) == (begun.id, False)


async def test_a_job_whose_step_is_missing_waits_with_that_cause_and_runs_once_it_is_back(
    open_sandbox: OpenSandbox,
) -> None:
    without_draft = Pipeline("article")

    @without_draft.step
    async def outline() -> str:
        return "outline"

    async with open_sandbox(make_old_version()) as sandbox, sandbox.manual_worker() as worker:
        run = (await sandbox.client.start("article")).id
        await run_next(worker, "outline")
    async with open_sandbox(without_draft) as sandbox, sandbox.manual_worker() as worker:
        now = await sandbox.clock.now()
        await run_next(worker, "draft")
        (job,) = (job for job in await sandbox.client.runs.list_jobs(run) if job.step == "draft")
        assert (job.state, job.code, job.attempt) == ("ready", "UNDEFINED_STEP", 0)
        assert job.ready_at is not None
        assert job.ready_at > now
        assert await state(sandbox, run) == "running"
    async with open_sandbox(make_old_version()) as sandbox:
        await sandbox.clock.advance(timedelta(minutes=5))
        await sandbox.work()
        assert await state(sandbox, run) == "completed"


async def test_a_successor_that_its_worker_does_not_define_is_returned(
    open_sandbox: OpenSandbox,
) -> None:
    without_draft = Pipeline("article")

    @without_draft.step
    async def outline() -> str:
        return "outline"

    async with open_sandbox(make_old_version()) as sandbox:
        run = (await sandbox.client.start("article")).id
    async with open_sandbox(without_draft) as sandbox, sandbox.manual_worker() as worker:
        kept = await worker.record_outcomes(await worker.attempt(await worker.claim()), limit=1)
        await run_claims(worker, kept, "draft")
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

    async with open_sandbox(make_old_version()) as sandbox, sandbox.manual_worker() as worker:
        run = (await sandbox.client.start("article")).id
        await run_next(worker, "outline")
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

    async with open_sandbox(with_mix(with_default)) as sandbox, sandbox.manual_worker() as worker:
        run = (await sandbox.client.start("film")).id
        await run_next(worker, "song")
        assert await states(sandbox, run) == {"song": "skipped", "mix": "ready"}
    async with open_sandbox(with_mix(without_default)) as sandbox:
        await sandbox.work()
        assert await states(sandbox, run) == {"song": "skipped", "mix": "skipped"}
        assert await state(sandbox, run) == "completed"


async def test_a_result_that_is_no_longer_taken_is_ignored(open_sandbox: OpenSandbox) -> None:
    today = Pipeline("article")

    @today.step
    async def outline() -> str:
        return "outline"

    @today.step
    async def draft() -> str:
        return "draft of nothing"

    async with open_sandbox(make_old_version()) as sandbox, sandbox.manual_worker() as worker:
        run = (await sandbox.client.start("article")).id
        await run_next(worker, "outline")
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


async def test_a_run_keeps_its_items_though_the_current_code_does_not_fan_out(open_sandbox: OpenSandbox) -> None:
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


async def test_a_former_each_step_that_is_now_plain_is_not_run(open_sandbox: OpenSandbox) -> None:
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

    async with open_sandbox(fan_out()) as sandbox, sandbox.manual_worker() as worker:
        run = (await sandbox.client.start("labels")).id
        await run_next(worker, "documents")
    async with open_sandbox(plain) as sandbox, sandbox.manual_worker() as worker:
        await run_next(worker, "label:a", "label:b")
        assert (await codes(sandbox, run))["label:a"] == "UNDEFINED_STEP"
    async with open_sandbox(fan_out()) as sandbox, sandbox.manual_worker() as worker:
        await sandbox.clock.advance(timedelta(minutes=5))
        await rows(sandbox, "select retoma.release_due_jobs(10)")
        await run_next(worker, "label:a", "label:b")
    async with open_sandbox(plain) as sandbox, sandbox.manual_worker() as worker:
        await run_next(worker, "report")
        assert (await states(sandbox, run))["report"] == "ready"
        assert (await codes(sandbox, run))["report"] == "UNDEFINED_STEP"


async def test_jobs_of_another_application_are_left_to_it(open_sandbox: OpenSandbox) -> None:
    async with open_sandbox(fan_out()) as sandbox:
        await sandbox.client.start("labels")
    async with open_sandbox(make_old_version()) as sandbox, sandbox.manual_worker() as worker:
        run = (await sandbox.client.start("article")).id
        assert [claim.run for claim in await worker.claim(10)] == [run]


@pytest.mark.parametrize("committed_late", [False, True])
async def test_a_worker_learns_versions_that_others_store(open_sandbox: OpenSandbox, committed_late: bool) -> None:
    newest = make_old_version()

    @newest.step
    async def summary(draft: str) -> str:
        return draft[:3]

    async with open_sandbox(newest) as sandbox:
        catalog = make_served_versions(sandbox)
        connection = await sandbox.database.connect()
        transaction = connection.transaction()
        await transaction.start()
        late = await read_stored_graph(connection, make_old_version()) if committed_late else None
        await catalog.register_and_load(sandbox.database)
        await transaction.commit()
        number = late or await register(sandbox.database, make_old_version())
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
