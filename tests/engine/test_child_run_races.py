"""Two connections at once, where the end of a child run meets the parking of its parent."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass
from uuid import UUID

from retoma.engine.outcomes import Outcome, Success
from retoma.store import external_work
from retoma.testing import ManualWorker, Sandbox
from tests.conftest import OpenSandbox
from tests.engine.builders import RawChannel, names, rows, run_claims, state, value
from tests.engine.test_child_runs import Writing, list_children
from tests.engine.test_external_work_races import claim_polls
from tests.engine.test_races import begin_uncommitted_call, hold_job, is_blocked, wait_until
from tests.wait_timeout import WAIT_TIMEOUT


@dataclass(frozen=True)
class Meeting:
    """A parent whose attempt has started a child and is about to be parked, and a worker about to end the child."""

    sandbox: Sandbox
    parent: UUID
    child: UUID
    parking: RawChannel
    parked: list[Outcome]
    ending: RawChannel
    ended: list[Outcome]


@asynccontextmanager
async def open_meeting(open_sandbox: OpenSandbox) -> AsyncIterator[Meeting]:
    writing = Writing()
    async with (
        writing.open(open_sandbox) as sandbox,
        sandbox.manual_worker() as one,
        sandbox.manual_worker() as other,
    ):
        run = (await sandbox.client.start(writing.batch, {"topics": ["tea"]})).id
        await run_claims(one, await one.claim(1), "topics")
        parked = await one.attempt(await one.claim(1))
        (child,) = await list_children(sandbox, run)
        await run_claims(other, await other.claim(1), "text")
        ended = await other.attempt(await other.claim(1))
        yield Meeting(sandbox, run, child.id, get_channel(sandbox, one), parked, get_channel(sandbox, other), ended)


def get_channel(sandbox: Sandbox, worker: ManualWorker) -> RawChannel:
    return RawChannel(sandbox, worker.worker, worker._link, worker.versions)


async def test_the_end_of_a_child_waits_for_its_parents_park_and_wakes_it(open_sandbox: OpenSandbox) -> None:
    async with open_meeting(open_sandbox) as meeting:
        async with begin_uncommitted_call(meeting.sandbox, meeting.parking, meeting.parked) as commit:
            ending = asyncio.create_task(meeting.ending.call(meeting.ended))
            await wait_until(lambda: is_blocked(meeting.sandbox, "finish_and_claim"))
            await commit()
            await ending
        await meeting.sandbox.work(advance_clock=False)
        assert await state(meeting.sandbox, meeting.parent) == "completed"


async def test_a_park_does_not_wait_for_the_end_of_its_child(open_sandbox: OpenSandbox) -> None:
    """The end cannot see the row that the park inserts, so the child is polled until its end is committed."""
    async with open_meeting(open_sandbox) as meeting:
        async with begin_uncommitted_call(meeting.sandbox, meeting.ending, meeting.ended) as commit:
            async with asyncio.timeout(WAIT_TIMEOUT):
                await meeting.parking.call(meeting.parked)
            await meeting.sandbox.work(advance_clock=False)
            assert await state(meeting.sandbox, meeting.parent) == "running"
            await commit()
        await meeting.sandbox.work()
        assert await state(meeting.sandbox, meeting.parent) == "completed"


async def test_a_poll_that_began_before_the_end_of_the_child_does_not_hide_it(open_sandbox: OpenSandbox) -> None:
    async with open_meeting(open_sandbox) as meeting:
        await meeting.parking.call(meeting.parked)
        (poll,) = await claim_polls(meeting.sandbox)
        await meeting.ending.call(meeting.ended)
        await external_work.record_poll(meeting.sandbox.database, poll, state="running")
        await meeting.sandbox.work()
        assert await state(meeting.sandbox, meeting.parent) == "completed"


async def test_a_park_locks_its_child_after_every_other_row(open_sandbox: OpenSandbox) -> None:
    """The end of the child holds jobs when it locks its run: the other order could be a deadlock."""
    writing = Writing()
    async with writing.open(open_sandbox) as sandbox, sandbox.manual_worker() as worker:
        run = (await sandbox.client.start(writing.batch, {"topics": ["tea", "milk"]})).id
        await run_claims(worker, await worker.claim(1), "topics")
        claims = await worker.claim(2)
        assert names(claims) == ["written:milk", "written:tea"]
        outcomes = [*await worker.attempt(claims[:1]), Success(claims[1], '"published"')]
        (child,) = await list_children(sandbox, run)
        async with hold_job(sandbox, "all_written") as holder:
            call = asyncio.create_task(worker.record_outcomes(outcomes))
            await wait_until(lambda: is_blocked(sandbox, "finish_and_claim"))
            assert await rows(sandbox, "select from retoma.runs where id = $1 for update skip locked", child.id)
            await holder.close()
            await call
        await sandbox.work()
        assert await state(sandbox, run) == "completed"
        assert await value(sandbox, "select count(*) from retoma.runs where parent is not null") == 1
