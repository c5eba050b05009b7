from __future__ import annotations

import asyncio
from typing import Any

import pytest

from retoma import GiveUp, Items, Pipeline, Pool, Retry, all_finished
from retoma.client import Client
from retoma.errors import InvalidInput, NotFound, RunBusy
from retoma.identifiers import new_run_id
from tests.conftest import OpenSandbox
from tests.engine.builders import kinds, run_claims, run_next, state, states, value


class World:
    """The steps that fail now, and the calls that were made."""

    def __init__(self, *bad: Any) -> None:
        self.bad = set(bad)
        self.called: list[str] = []

    def call(self, what: str) -> str:
        self.called.append(what)
        if what in self.bad:
            raise GiveUp(f"{what} is bad", code="BAD")
        return what


def labels(world: World, **options: Any) -> Pipeline:
    """Documents, each read and labelled; a report of all; a mail of the report."""
    pipeline = Pipeline("labels", retry=Retry(0))

    @pipeline.step
    def documents() -> list[str]:
        world.call("documents")
        return ["a", "b", "c"]

    @pipeline.step
    def taxonomy() -> str:
        return world.call("taxonomy")

    @pipeline.each(documents, **options)
    def text(document: str) -> str:
        return world.call(f"text {document}")

    @pipeline.each(documents)
    def label(text: str, taxonomy: str) -> str:
        return world.call(text.replace("text", "label"))

    @pipeline.step(proceed_when=all_finished(allow_failed=1.0))
    def report(label: Items[str]) -> list[str]:
        world.call("report")
        return list(label)

    @pipeline.step
    def mail(report: list[str]) -> int:
        world.call("mail")
        return len(report)

    return pipeline


async def test_only_failed_jobs_and_their_dependents_are_rerun(open_sandbox: OpenSandbox) -> None:
    world = World("text b", "label c")
    pipeline = labels(world)
    async with open_sandbox(pipeline) as sandbox:
        run = await sandbox.run(pipeline)
        assert (run.state, run.results["report"]) == ("completed_with_errors", ["label a"])

        world.bad.clear()
        world.called.clear()
        made = await sandbox.client.runs.rerun_failed(run.id)
        assert (made.number, made.jobs) == (2, 2)
        assert await state(sandbox, run.id) == "running"
        await sandbox.work()
        assert await state(sandbox, run.id) == "completed"
        results = await sandbox.client.runs.get_results(run.id)
        assert results["report"] == ["label a", "label b", "label c"]
        assert results["mail"] == 3
        assert sorted(world.called) == ["label b", "label c", "mail", "report", "text b"]


async def test_a_repeated_failure_is_an_error_again_and_can_be_rerun_again(open_sandbox: OpenSandbox) -> None:
    world = World("text b", "text c")
    pipeline = labels(world)
    async with open_sandbox(pipeline) as sandbox:
        run = await sandbox.run(pipeline)
        world.bad = {"text c"}
        assert (await sandbox.client.runs.rerun_failed(run.id)).jobs == 2
        await sandbox.work()
        assert await state(sandbox, run.id) == "completed_with_errors"
        world.bad.clear()
        made = await sandbox.client.runs.rerun_failed(run.id)
        assert (made.number, made.jobs) == (3, 1)
        await sandbox.work()
        assert await state(sandbox, run.id) == "completed"
        assert (await sandbox.client.runs.get_results(run.id))["mail"] == 3


async def test_one_of_several_failed_items_can_be_chosen(open_sandbox: OpenSandbox) -> None:
    world = World("text b", "text c")
    pipeline = labels(world)
    async with open_sandbox(pipeline) as sandbox:
        run = await sandbox.run(pipeline)
        world.bad.clear()
        assert (await sandbox.client.runs.rerun_failed(run.id, step="text", items=["b", "a"])).jobs == 1
        await sandbox.work()
        assert await state(sandbox, run.id) == "completed_with_errors"
        assert (await sandbox.client.runs.get_results(run.id))["report"] == ["label a", "label b"]


async def test_a_run_stopped_by_a_failure_continues_where_it_stopped(open_sandbox: OpenSandbox) -> None:
    world = World("taxonomy")
    pipeline = labels(world)
    async with open_sandbox(pipeline) as sandbox, sandbox.manual_worker() as worker:
        run = (await sandbox.client.start(pipeline)).id
        claims = await worker.claim(100)
        await run_claims(worker, claims, "documents")
        await run_next(worker, "text:a", "text:b", "text:c")
        await run_claims(worker, claims, "taxonomy")
        assert await state(sandbox, run) == "failed"
        world.bad.clear()
        world.called.clear()
        await sandbox.client.runs.rerun_failed(run)
        await sandbox.work()
        assert (await state(sandbox, run), (await sandbox.client.runs.get_results(run))["mail"]) == ("completed", 3)
        assert sorted(world.called) == ["label a", "label b", "label c", "mail", "report", "taxonomy"]


async def test_successors_of_jobs_that_ended_while_the_run_stopped_are_created(open_sandbox: OpenSandbox) -> None:
    world = World("taxonomy")
    pipeline = labels(world)
    async with open_sandbox(pipeline) as sandbox:
        run = await sandbox.run(pipeline)
        assert run.state == "failed"
        world.bad.clear()
        await sandbox.client.runs.rerun_failed(run.id)
        await sandbox.work()
        assert await state(sandbox, run.id) == "completed"
        assert (await sandbox.client.runs.get_results(run.id))["mail"] == 3


async def test_a_failed_source_fans_out_when_it_is_rerun(open_sandbox: OpenSandbox) -> None:
    world = World("documents")
    pipeline = labels(world)
    async with open_sandbox(pipeline) as sandbox:
        run = await sandbox.run(pipeline)
        assert run.state == "failed"
        world.bad.clear()
        await sandbox.client.runs.rerun_failed(run.id)
        await sandbox.work()
        assert await state(sandbox, run.id) == "completed"
        assert (await sandbox.client.runs.get_results(run.id))["mail"] == 3


async def test_new_items_wait_for_a_dependency_with_a_pending_rerun(open_sandbox: OpenSandbox) -> None:
    """Both the list and the shared dependency had failed, and another step creates the second one."""
    world = World("first")
    pipeline = Pipeline("shared", retry=Retry(0))

    @pipeline.step
    def first() -> str:
        return world.call("first")

    @pipeline.step
    def second(first: str) -> str:
        return world.call("second")

    @pipeline.step(on_failure="continue")
    def names(first: str) -> list[str]:
        return ["a", "b"]

    @pipeline.each(names)
    def greeting(name: str, second: str) -> str:
        return f"{second} {name}"

    async with open_sandbox(pipeline) as sandbox, sandbox.manual_worker() as worker:
        run = await sandbox.run(pipeline)
        world.bad.clear()
        await sandbox.client.runs.rerun_failed(run.id)
        await run_next(worker, "first")
        claims = await worker.claim(100)
        assert sorted(claim.step for claim in claims) == ["names", "second"]
        for name in ("names", "second"):
            await worker.record_outcomes(await worker.attempt([claim for claim in claims if claim.step == name]))
        await sandbox.work()
        assert (await sandbox.client.runs.get_results(run.id))["greeting"] == {"a": "second a", "b": "second b"}
        assert await state(sandbox, run.id) == "completed"


async def test_previous_results_are_kept(open_sandbox: OpenSandbox) -> None:
    world = World("text b")
    pipeline = labels(world)
    async with open_sandbox(pipeline) as sandbox:
        run = await sandbox.run(pipeline)
        world.bad.clear()
        await sandbox.client.runs.rerun_failed(run.id)
        await sandbox.work()
        kept = "select count(*) from retoma.jobs where run = $1 and step = 'report' and state = 'succeeded'"
        assert await value(sandbox, kept, run.id) == 2


async def test_each_rerun_has_its_own_attempts(open_sandbox: OpenSandbox) -> None:
    pipeline = Pipeline("tries", retry=Retry(1, delays=[1]))
    tries: list[int] = []

    @pipeline.step
    def answer() -> int:
        tries.append(1)
        if len(tries) < 4:
            raise ValueError("no")
        return len(tries)

    async with open_sandbox(pipeline) as sandbox:
        run = await sandbox.run(pipeline)
        assert (run.state, len(tries)) == ("failed", 2)
        await sandbox.client.runs.rerun_failed(run.id)
        await sandbox.work()
        assert await state(sandbox, run.id) == "completed"
        (job,) = await sandbox.client.runs.list_jobs(run.id)
        assert (job.revision, job.attempt) == (2, 2)


async def test_a_rerun_takes_its_slots_again(open_sandbox: OpenSandbox) -> None:
    world = World("text b")
    pipeline = labels(world, pool=Pool("reading", capacity=1))
    async with open_sandbox(pipeline) as sandbox:
        run = await sandbox.run(pipeline)
        await sandbox.client.pools.update("reading", capacity=0)
        world.bad.clear()
        await sandbox.client.runs.rerun_failed(run.id)
        await sandbox.work()
        assert (await states(sandbox, run.id))["text:b"] == "ready"
        await sandbox.client.pools.update("reading", capacity=1)
        await sandbox.work()
        assert await state(sandbox, run.id) == "completed"


async def test_fifty_concurrent_reruns_take_effect_once_and_get_the_same_answer(open_sandbox: OpenSandbox) -> None:
    world = World("text b")
    pipeline = labels(world)
    async with open_sandbox(pipeline) as sandbox:
        run = await sandbox.run(pipeline)
        answers = await asyncio.gather(*(sandbox.client.runs.rerun_failed(run.id) for _ in range(50)))
        assert {(answer.number, answer.jobs) for answer in answers} == {(2, 1)}
        assert (await kinds(sandbox, run.id)).count("action") == 1


async def test_a_run_that_has_not_ended_is_left_alone(open_sandbox: OpenSandbox) -> None:
    world = World()
    pipeline = labels(world)
    async with open_sandbox(pipeline) as sandbox:
        run = (await sandbox.client.start(pipeline)).id
        with pytest.raises(RunBusy, match="is running: only a run that has completed"):
            await sandbox.client.runs.rerun_failed(run)
        await sandbox.client.runs.cancel(run)
        with pytest.raises(RunBusy, match="is cancelled"):
            await sandbox.client.runs.rerun_failed(run)


async def test_a_cancelled_rerun_is_not_in_progress(open_sandbox: OpenSandbox) -> None:
    pipeline = labels(World("text b"))
    async with open_sandbox(pipeline) as sandbox:
        run = await sandbox.run(pipeline)
        await sandbox.client.runs.rerun_failed(run.id)
        await sandbox.client.runs.cancel(run.id)
        with pytest.raises(RunBusy, match="is cancelled"):
            await sandbox.client.runs.rerun_failed(run.id)


async def test_a_run_without_failures_stays_ended(open_sandbox: OpenSandbox) -> None:
    pipeline = labels(World())
    async with open_sandbox(pipeline) as sandbox:
        run = await sandbox.run(pipeline)
        made = await sandbox.client.runs.rerun_failed(run.id)
        assert (made.number, made.jobs, await state(sandbox, run.id)) == (1, 0, "completed")


async def test_a_run_of_another_tenant_is_not_found(open_sandbox: OpenSandbox) -> None:
    pipeline = labels(World("text a"))
    async with open_sandbox(pipeline) as sandbox:
        run = await sandbox.run(pipeline)
        with pytest.raises(NotFound):
            await sandbox.client.runs.rerun_failed(run.id, tenant="other")
        with pytest.raises(NotFound):
            await sandbox.client.runs.rerun_failed(new_run_id())


async def test_the_run_enqueues_its_end_webhook_again(open_sandbox: OpenSandbox) -> None:
    world = World("text b")
    pipeline = labels(world)
    async with open_sandbox(pipeline) as sandbox:
        run = await sandbox.run(pipeline)
        world.bad.clear()
        await sandbox.client.runs.rerun_failed(run.id)
        await sandbox.work()
        assert (await kinds(sandbox, run.id)).count("end") == 2


async def test_an_edited_result_replaces_a_failed_one(open_sandbox: OpenSandbox) -> None:
    world = World("label b")
    pipeline = labels(world)
    async with open_sandbox(pipeline) as sandbox:
        run = await sandbox.run(pipeline)
        world.called.clear()
        made = await sandbox.client.runs.edit(run.id, "label", "by hand", item="b", by="ana")
        assert made.number == 2
        await sandbox.work()
        assert await state(sandbox, run.id) == "completed"
        assert (await sandbox.client.runs.get_results(run.id))["report"] == ["label a", "by hand", "label c"]
        assert world.called == ["report", "mail"]
        assert await value(sandbox, "select author from retoma.jobs where author is not null") == "ana"


async def test_a_rerun_that_replaces_an_edited_result_shows_the_failure_again(open_sandbox: OpenSandbox) -> None:
    pipeline = labels(World("text b"))
    async with open_sandbox(pipeline) as sandbox:
        run = await sandbox.run(pipeline)
        await sandbox.client.runs.edit(run.id, "label", "by hand", item="b", by="ana")
        await sandbox.work()
        assert await state(sandbox, run.id) == "completed"
        await sandbox.client.runs.rerun(run.id, "taxonomy", reuse=False)
        await sandbox.work()
        assert await state(sandbox, run.id) == "completed_with_errors"
        assert (await sandbox.client.runs.get_results(run.id))["report"] == ["label a", "label c"]


async def test_an_edited_result_without_dependents_leaves_the_run_ended(open_sandbox: OpenSandbox) -> None:
    pipeline = labels(World())
    async with open_sandbox(pipeline) as sandbox:
        run = await sandbox.run(pipeline)
        await sandbox.client.runs.edit(run.id, "mail", 99)
        assert await state(sandbox, run.id) == "completed"
        assert (await sandbox.client.runs.get_results(run.id))["mail"] == 99


async def test_an_edited_result_lets_a_failed_run_continue(open_sandbox: OpenSandbox) -> None:
    world = World("taxonomy")
    pipeline = labels(world)
    async with open_sandbox(pipeline) as sandbox:
        run = await sandbox.run(pipeline)
        await sandbox.client.runs.edit(run.id, "taxonomy", "by hand")
        await sandbox.work()
        assert (await state(sandbox, run.id), (await sandbox.client.runs.get_results(run.id))["mail"]) == (
            "completed",
            3,
        )


async def test_an_edited_result_must_have_the_result_type_of_the_step(open_sandbox: OpenSandbox) -> None:
    pipeline = labels(World())
    async with open_sandbox(pipeline) as sandbox:
        run = await sandbox.run(pipeline)
        with pytest.raises(InvalidInput, match="not a valid result for 'label'"):
            await sandbox.client.runs.edit(run.id, "label", {"x": 1}, item="a")
        assert (await sandbox.client.runs.get(run.id)).revision == 1


async def test_an_edited_result_is_rejected_if_its_type_is_unknown(open_sandbox: OpenSandbox) -> None:
    pipeline = labels(World())
    async with open_sandbox(pipeline) as sandbox:
        run = await sandbox.run(pipeline)
        with pytest.raises(InvalidInput, match="no application that defines pipeline 'labels'"):
            await Client(None, sandbox.database).runs.edit(run.id, "mail", 99)
        assert (await sandbox.client.runs.get(run.id)).revision == 1


async def test_a_list_whose_items_exist_cannot_be_edited(open_sandbox: OpenSandbox) -> None:
    pipeline = labels(World())
    async with open_sandbox(pipeline) as sandbox:
        run = await sandbox.run(pipeline)
        with pytest.raises(RunBusy, match="already has items of this list"):
            await sandbox.client.runs.edit(run.id, "documents", ["x"])
        assert (await sandbox.client.runs.get(run.id)).revision == 1


async def test_items_skipped_by_a_person_are_not_errors(open_sandbox: OpenSandbox) -> None:
    world = World("text b")
    pipeline = labels(world)
    async with open_sandbox(pipeline) as sandbox:
        run = await sandbox.run(pipeline)
        world.called.clear()
        await sandbox.client.runs.skip(run.id, "text", ["b"], by="ana")
        await sandbox.work()
        assert await state(sandbox, run.id) == "completed"
        assert (await states(sandbox, run.id))["label:b"] == "skipped"
        assert world.called == ["report"]  # and the mail of it would be the same


async def test_a_missing_item_can_be_neither_edited_nor_skipped(open_sandbox: OpenSandbox) -> None:
    pipeline = labels(World())
    async with open_sandbox(pipeline) as sandbox:
        run = await sandbox.run(pipeline)
        with pytest.raises(NotFound, match="no label of z in run"):
            await sandbox.client.runs.edit(run.id, "label", "x", item="z")
        with pytest.raises(NotFound):
            await sandbox.client.runs.skip(run.id, "label", ["z"])
