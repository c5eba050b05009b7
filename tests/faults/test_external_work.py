"""External work while the workers that poll it die, freeze, or lose the database."""

from __future__ import annotations

import os
import signal
from uuid import UUID

import pytest

from bench.chaos import fake_provider
from bench.chaos.proxy import Call
from tests.faults.application import answer_file, hold_file, poll_marker
from tests.faults.testbed import LONG_TIMEOUT, FaultEnvironment, WorkerProcess, wait_until

PARKED = {"crafted": "parked"}


async def states(testbed: FaultEnvironment, run: UUID) -> dict[str, str]:
    return {job.step: str(job.state) for job in await testbed.client.runs.list_jobs(run)}


async def is_parked(testbed: FaultEnvironment, run: UUID) -> bool:
    return await states(testbed, run) == PARKED


async def slots(testbed: FaultEnvironment) -> int:
    (bench,) = await testbed.client.pools.list("bench")
    return bench.used


async def test_a_poll_result_is_refused_after_another_worker_took_the_poll(testbed: FaultEnvironment) -> None:
    """The poller freezes after it received a failure that has been fixed in the meantime."""
    answer_file("late").write_text("failed")
    hold_file("late").touch()
    zombie = testbed.worker(heartbeat_timeout=LONG_TIMEOUT)
    run = await testbed.start("outsourced", "late")
    await wait_until(lambda: poll_marker("late", zombie.pid).exists(), "the first poller asks")
    zombie.signal(signal.SIGSTOP)
    answer_file("late").write_text("running")
    hold_file("late").unlink()
    heir = testbed.worker(by_proxy=False, heartbeat_timeout=LONG_TIMEOUT)
    await wait_until(lambda: poll_marker("late", heir.pid).exists(), "another poller asks")

    reported = count_answers(testbed, "retoma.record_poll")
    zombie.signal(signal.SIGCONT)
    await wait_until(lambda: reported, "the late report is answered")
    assert await states(testbed, run) == PARKED
    answer_file("late").write_text("succeeded")
    assert await testbed.wait_for_end(run) == ["completed"]
    assert len(fake_provider.list_work(testbed.folder)) == 1
    await testbed.check()


def count_answers(testbed: FaultEnvironment, name: str) -> list[Call]:
    """The calls of this name that are answered from now on; it is still growing."""
    seen: list[Call] = []

    def notes(call: Call) -> bool:
        if name in call.sql:
            seen.append(call)
        return False

    testbed.proxy.loses_answer = notes
    return seen


@pytest.mark.parametrize("call", ["retoma.begin_effect", "retoma.end_effect", "retoma.record_poll"])
async def test_an_answer_lost_after_its_commit_costs_nothing(testbed: FaultEnvironment, call: str) -> None:
    answer_file("once").write_text("succeeded")
    lost: list[Call] = []

    def loses(answered: Call) -> bool:
        if call not in answered.sql or lost:
            return False
        lost.append(answered)
        return True

    testbed.proxy.loses_answer = loses
    testbed.worker(heartbeat_timeout=LONG_TIMEOUT)
    run = await testbed.start("outsourced", "once")
    assert await testbed.wait_for_end(run) == ["completed"]
    assert lost
    (job,) = await testbed.client.runs.list_jobs(run)
    assert job.attempt == 1
    assert len(fake_provider.list_work(testbed.folder)) == 1
    await testbed.check()


@pytest.mark.parametrize("moment", ["before", "after"])
@pytest.mark.parametrize("call", ["retoma.poll_due", "retoma.record_poll"])
async def test_a_cancel_reaches_external_work_though_its_worker_is_killed(
    testbed: FaultEnvironment, moment: str, call: str
) -> None:
    messenger = testbed.worker(heartbeat_timeout=LONG_TIMEOUT)
    run = await testbed.start("outsourced", "cancelled")
    await wait_until(lambda: is_parked(testbed, run), "it is parked")

    def kills(seen: Call) -> bool:
        if call not in seen.sql:
            return False
        kill(messenger)
        return True

    assert await testbed.client.runs.cancel(run) == "cancelling"
    if moment == "before":
        testbed.proxy.loses_call = kills
    else:
        testbed.proxy.loses_answer = kills
    await wait_until(lambda: not messenger.is_running, "the messenger dies")
    testbed.proxy.loses_call = testbed.proxy.loses_answer = lambda call: False
    testbed.worker()
    assert await testbed.wait_for_end(run) == ["cancelled"]
    assert answer_file("cancelled").read_text() == "cancelled"
    assert await slots(testbed) == 0


def kill(worker: WorkerProcess) -> None:
    if worker.is_running:
        os.kill(worker.pid, signal.SIGKILL)
