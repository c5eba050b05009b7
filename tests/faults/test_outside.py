"""Work that goes on outside, while those who look after it die, stand still, or lose the database."""

from __future__ import annotations

import os
import signal
from uuid import UUID

import pytest

from bench.chaos import farm
from bench.chaos.proxy import Call
from tests.faults.application import asked, holds, says
from tests.faults.stage import SOON, Stage, WorkerProcess, until

PARKED = {"crafted": "parked"}


async def states(stage: Stage, run: UUID) -> dict[str, str]:
    return {job.step: str(job.state) for job in await stage.client.jobs(run)}


async def is_parked(stage: Stage, run: UUID) -> bool:
    return await states(stage, run) == PARKED


async def slots(stage: Stage) -> int:
    (bench,) = await stage.client.pools("bench")
    return bench.used


async def test_a_report_that_comes_after_its_look_was_given_to_another_is_refused(stage: Stage) -> None:
    """The poller stands still after it was told of a failure that has been put right in the meantime."""
    says("late").write_text("failed")
    holds("late").touch()
    zombie = stage.worker(silence=SOON)
    run = await stage.start("outsourced", "late")
    await until(lambda: asked("late", zombie.pid).exists(), "the first poller asks")
    zombie.signal(signal.SIGSTOP)
    says("late").write_text("running")
    holds("late").unlink()
    heir = stage.worker(by_proxy=False, silence=SOON)
    await until(lambda: asked("late", heir.pid).exists(), "another poller asks")

    reported = answers_of(stage, "retoma.record_look")
    zombie.signal(signal.SIGCONT)
    await until(lambda: reported, "the late report is answered")
    assert await states(stage, run) == PARKED
    says("late").write_text("succeeded")
    assert await stage.ended(run) == ["completed"]
    assert len(farm.works(stage.folder)) == 1
    await stage.check()


def answers_of(stage: Stage, name: str) -> list[Call]:
    """The calls of this name that are answered from now on; it is still growing."""
    seen: list[Call] = []

    def notes(call: Call) -> bool:
        if name in call.sql:
            seen.append(call)
        return False

    stage.proxy.loses_answer = notes
    return seen


@pytest.mark.parametrize("call", ["retoma.begin_effect", "update retoma.effects", "retoma.record_look"])
async def test_an_answer_that_is_lost_after_its_commit_costs_nothing(stage: Stage, call: str) -> None:
    says("once").write_text("succeeded")
    lost: list[Call] = []

    def loses(answered: Call) -> bool:
        if call not in answered.sql or lost:
            return False
        lost.append(answered)
        return True

    stage.proxy.loses_answer = loses
    stage.worker(silence=SOON)
    run = await stage.start("outsourced", "once")
    assert await stage.ended(run) == ["completed"]
    assert lost
    (job,) = await stage.client.jobs(run)
    assert job.attempt == 1
    assert len(farm.works(stage.folder)) == 1
    await stage.check()


@pytest.mark.parametrize("moment", ["before", "after"])
@pytest.mark.parametrize("call", ["retoma.looks_due", "retoma.record_look"])
async def test_a_cancel_reaches_the_outside_though_its_messenger_is_killed(
    stage: Stage, moment: str, call: str
) -> None:
    messenger = stage.worker(silence=SOON)
    run = await stage.start("outsourced", "cancelled")
    await until(lambda: is_parked(stage, run), "it is parked")

    def kills(seen: Call) -> bool:
        if call not in seen.sql:
            return False
        kill(messenger)
        return True

    assert await stage.client.cancel(run) == "cancelling"
    if moment == "before":
        stage.proxy.loses_call = kills
    else:
        stage.proxy.loses_answer = kills
    await until(lambda: not messenger.lives, "the messenger dies")
    stage.proxy.loses_call = stage.proxy.loses_answer = lambda call: False
    stage.worker()
    assert await stage.ended(run) == ["cancelled"]
    assert says("cancelled").read_text() == "cancelled"
    assert await slots(stage) == 0


def kill(worker: WorkerProcess) -> None:
    if worker.lives:
        os.kill(worker.pid, signal.SIGKILL)
