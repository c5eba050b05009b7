"""A worker is killed at every commit of every shape of pipeline, and another worker finishes the run.

With external work (`rendering`), the commits are: before and after the intent is recorded, after the submission and
before it is recorded, then before the job parks, while it is parked, before and after a poll and its record, and after
another worker claimed the job.
"""

from __future__ import annotations

import os
import signal
from collections.abc import Callable
from itertools import count
from uuid import UUID

import pytest

from bench.chaos import execution_log
from bench.chaos.proxy import Call
from tests.faults.testbed import FaultEnvironment, WorkerProcess, wait_until

# Small, but with at least two items where there are any.
SIZES = {
    "chain": 0,
    "album": 2,
    "diamond": 0,
    "film": 1,
    "gallery": 2,
    "menu": 2,
    "trial": 1,
    "parcel": 0,
    "laboratory": 1,
    "rendering": 1,
    "printing": 1,
    "column": 0,
}
MAX_COMMITS = 40
MAX_EARLY_ENDS = 20
EXTERNAL_WORK_CALLS = ("retoma.begin_effect", "retoma.end_effect", "retoma.poll_due", "retoma.record_poll")
RESULTS, OTHER_OUTCOMES = 3, 13  # the parameters of `finish_and_claim` with the runs of successes and other outcomes


class Killer:
    """Kills the worker at the n-th moment that matters: its first call, and each that writes something down."""

    def __init__(self, worker: Callable[[], WorkerProcess], number: int) -> None:
        self._worker = worker
        self._left = number
        self._called = False

    def on_call(self, call: Call) -> bool:
        matters = is_external_work(call) or (is_claim_call(call) and (carries_outcomes(call) or not self._called))
        self._called = True
        return self._strike() if matters else False

    def on_answer(self, call: Call) -> bool:
        matters = (is_external_work(call) and call.rows) or (
            is_claim_call(call) and (carries_outcomes(call) or call.rows)
        )
        return self._strike() if matters else False

    def _strike(self) -> bool:
        self._left -= 1
        if self._left == 0:
            os.kill(self._worker().pid, signal.SIGKILL)
        return self._left <= 0


def is_claim_call(call: Call) -> bool:
    return "retoma.finish_and_claim" in call.sql


def is_external_work(call: Call) -> bool:
    return any(name in call.sql for name in EXTERNAL_WORK_CALLS)


def carries_outcomes(call: Call) -> bool:
    """Whether it carries results or other outcomes: an array without elements has no dimensions."""
    parameters = call.parameters
    return any((parameters[place] or b"")[:4] == b"\0\0\0\1" for place in (RESULTS, OTHER_OUTCOMES))


MOMENTS = ("before a commit", "after a commit", "within a body")
# The commits of isolated steps are those of all others, only their bodies are elsewhere; with pools it is the commits.
ONLY = {"laboratory": ("within a body",), "printing": ("after a commit",)}
POINTS = [(shape, moment) for shape in SIZES for moment in ONLY.get(shape, MOMENTS)]


@pytest.mark.parametrize(("shape", "moment"), POINTS)
async def test_a_worker_killed_at_any_point_costs_nothing(testbed: FaultEnvironment, shape: str, moment: str) -> None:
    points = 0
    for number in count(1):
        if not await has_point(testbed, shape, moment, number):
            break
        points = number
        assert points < MAX_COMMITS
    assert points >= 2
    await testbed.check()


async def has_point(testbed: FaultEnvironment, shape: str, moment: str, number: int) -> bool:
    """Return whether runs of this shape have so many commits. A rejected run ends early and proves nothing."""
    for again in range(MAX_EARLY_ENDS):
        run = await testbed.start(shape, f"{shape}-{number}-{again}", size=SIZES[shape])
        if await crashes(testbed, run, moment, number):
            return True
        if (await testbed.client.runs.get(run)).state not in ("rejected", "failed"):
            return False
    raise AssertionError(f"{MAX_EARLY_ENDS} runs in a row ended early")


async def crashes(testbed: FaultEnvironment, run: UUID, moment: str, number: int) -> bool:
    """Whether the run of a worker that is to die at this point had such a point. It ends in any case."""
    killer = Killer(lambda: worker, number)
    if moment == "before a commit":
        testbed.proxy.loses_call = killer.on_call
    elif moment == "after a commit":
        testbed.proxy.loses_answer = killer.on_answer
    else:
        execution_log.kill_worker_at(testbed.folder, run, number)
    worker = testbed.worker(heartbeat_timeout=30.0)
    async with testbed.run_reviewer():
        await wait_until(lambda: not worker.is_running or testbed.is_over(run), f"{worker.pid} dies, or ends the run")
    died = not worker.is_running
    assert worker.exit_code in (None, 0, -signal.SIGKILL), worker.log.read_text()
    await worker.end()
    testbed.proxy.loses_call = testbed.proxy.loses_answer = lambda call: False
    await testbed.declare_all_dead()
    if died:
        async with testbed.run_reviewer(), testbed.other_worker():
            await testbed.wait_for_end(run)
    return died
