"""Maintenance ends a run without live jobs, whatever went wrong before."""

from __future__ import annotations

from uuid import UUID

import pytest

from retoma import Pipeline, Retry
from retoma.store import workers
from retoma.testing import Sandbox
from tests.conftest import OpenSandbox
from tests.engine.builders import codes, rows, state


def chain() -> Pipeline:
    pipeline = Pipeline("chain", retry=Retry(0))

    @pipeline.step
    def first() -> int:
        return 1

    @pipeline.step
    def second(first: int) -> int:
        return first + 1

    return pipeline


async def start_chain(sandbox: Sandbox) -> UUID:
    run = (await sandbox.client.start("chain")).id
    async with sandbox.manual_worker() as worker:
        await worker.record_outcomes(await worker.attempt(await worker.claim(1)))
    return run


async def repair(sandbox: Sandbox) -> list[UUID]:
    ended, last = await workers.repair_runs(sandbox.database, None, 100)
    assert last is None
    return ended


END = """
update retoma.jobs set state = '{state}', worker = 0, ready_at = null, ended_at = retoma.now()
 where run = $1 and step = 'second'
"""
STOP = "update retoma.runs set final_state = '{ends_as}', state = '{state}' where id = $1"
BROKEN_STATES = {
    "its last step failed": ([END.format(state="failed")], "failed"),
    "its last step succeeded": ([END.format(state="succeeded")], "completed"),
    "its last step was never made": (["delete from retoma.jobs where run = $1 and step = 'second'"], "failed"),
    "it was stopping": ([END.format(state="failed"), STOP.format(ends_as="rejected", state="running")], "rejected"),
    "it was cancelled": (
        [END.format(state="cancelled"), STOP.format(ends_as="cancelled", state="cancelling")],
        "cancelled",
    ),
}
BEGIN = "update retoma.jobs set state = 'running', worker = 1 where run = $1 and state = 'ready'"


@pytest.mark.parametrize("planted", BROKEN_STATES)
async def test_a_run_without_live_jobs_is_ended(open_sandbox: OpenSandbox, planted: str) -> None:
    statements, ending = BROKEN_STATES[planted]
    async with open_sandbox(chain()) as sandbox:
        run = await start_chain(sandbox)
        await rows(sandbox, BEGIN, run)
        for statement in statements:
            await rows(sandbox, statement, run)
        assert await state(sandbox, run) in ("running", "cancelling")
        assert await repair(sandbox) == [run]
        assert await state(sandbox, run) == ending
        assert await repair(sandbox) == []


async def test_a_run_ended_by_repair_can_continue(open_sandbox: OpenSandbox) -> None:
    async with open_sandbox(chain()) as sandbox:
        run = await start_chain(sandbox)
        await rows(sandbox, "delete from retoma.jobs where run = $1 and step = 'second'", run)
        await repair(sandbox)
        (event,) = [one for one in await sandbox.client.runs.list_events(run) if one.kind == "failure"]
        assert event.data["code"] == "NO_ACTIVE_JOBS"
        await sandbox.client.runs.rerun(run, "first")
        await sandbox.work()
        assert (await state(sandbox, run), await sandbox.client.runs.get_results(run)) == (
            "completed",
            {"first": 1, "second": 2},
        )


async def test_runs_with_live_jobs_are_left_alone(open_sandbox: OpenSandbox) -> None:
    async with open_sandbox(chain()) as sandbox:
        ready = (await sandbox.client.start("chain")).id
        async with sandbox.manual_worker() as worker:
            await worker.claim(1)
            assert await repair(sandbox) == []
        assert (await state(sandbox, ready), await codes(sandbox, ready)) == ("running", {"first": "INTERRUPTED"})


async def test_open_runs_are_checked_in_batches(open_sandbox: OpenSandbox) -> None:
    async with open_sandbox(chain()) as sandbox:
        runs = sorted([(await sandbox.client.start("chain")).id for _ in range(3)])
        await rows(sandbox, "delete from retoma.jobs")
        first, last = await workers.repair_runs(sandbox.database, None, 2)
        rest, end = await workers.repair_runs(sandbox.database, last, 2)
        assert (sorted(first), rest, last, end) == (runs[:2], runs[2:], runs[1], None)
