"""The jobs that a worker holds: running jobs, prefetched jobs, and outcomes to report with the next call."""

from __future__ import annotations

import asyncio
import time
from collections import deque
from collections.abc import Callable, Sequence

from retoma.engine.claim_protocol import AttemptOutcome, Claim, Result
from retoma.identifiers import ClaimKey
from retoma.worker.context_backend import CALL_GRACE
from retoma.worker.step_runner import UNAVAILABLE_DELAY, StepRunner

MAX_PREFETCH = 480
SECONDS_AHEAD = 0.05
INITIAL_MEAN_SECONDS = 1.0  # assumed duration of a job until one has ended
MAX_CHECK_SECONDS = 0.1  # between two checks for timeouts
MIN_CHECK_SECONDS = 0.01
START_TIMEOUT = 60.0  # beyond its timeout, for preparing an attempt before its function starts
MAX_BLOCK_SECONDS = 5.0  # past a timeout, until the worker gives up a blocked loop
SUSPECT_TRIAL = 1.0  # after which a suspect is trusted: a job that kills its worker does so soon
PREFETCH_STALL = 2.0  # without starting a job, until prefetched jobs are returned for other workers
CANCEL_GRACE = 3.0  # for a job to end after its cancellation
IGNORED_CANCEL_ADVICE = "; it ignored its cancellation: do not suppress CancelledError, or set isolation= for the step"
BLOCKED_LOOP_ADVICE = "; it blocked the event loop: define the step with `def`, so it runs in its own thread"


class Executor:
    """Runs up to `concurrency` jobs, and prefetches jobs that it can start within a moment.

    A job is held from `take` until its outcome is collected. Its key includes the fence, so a job that was lost and
    claimed again counts as another job.
    """

    def __init__(self, runner: StepRunner, concurrency: int, on_outcome: Callable[[], None]) -> None:
        self._runner = runner
        self._concurrency = concurrency
        self._on_outcome = on_outcome
        self._held: dict[ClaimKey, Claim] = {}
        self._running: dict[ClaimKey, _RunningJob] = {}
        self._prefetched: deque[Claim] = deque()
        self._suspects: set[ClaimKey] = set()
        self._results: list[Result] = []
        self._outcomes: list[AttemptOutcome] = []
        self._mean_seconds = INITIAL_MEAN_SECONDS
        self._check_timer: asyncio.TimerHandle | None = None
        self._checked_at = time.monotonic()
        self._last_start_at = time.monotonic()
        self._closing = False
        self._dropped = False

    @property
    def room(self) -> int:
        """How many more jobs to claim: those that can start now, and some to prefetch if jobs are quick."""
        if self._closing:
            return 0
        ahead = min(MAX_PREFETCH, int(self._concurrency * SECONDS_AHEAD / self._mean_seconds))
        return self._concurrency + ahead - len(self._held)

    @property
    def has_outcomes(self) -> bool:
        return bool(self._results or self._outcomes)

    @property
    def is_idle(self) -> bool:
        return not self._held

    @property
    def has_suspect(self) -> bool:
        """Whether it holds a job that was running when a worker died, and may have killed it."""
        return bool(self._suspects)

    @property
    def running_jobs(self) -> list[ClaimKey]:
        """Jobs that may be cancelled. Last attempts, which only look for external work to cancel, are left out."""
        claims = [*(running.claim for running in self._running.values()), *self._prefetched]
        return [claim.key for claim in claims if not claim.last]

    @property
    def overdue_steps(self) -> list[str]:
        """Steps past their timeout that cannot be cancelled, because one of them blocks the loop. For other threads."""
        now = time.monotonic()
        if now - self._checked_at < MAX_BLOCK_SECONDS:
            return []
        return [one.claim.step for one in tuple(self._running.values()) if now > one.deadline + MAX_BLOCK_SECONDS]

    def holds(self, claim: Claim) -> bool:
        return claim.key in self._held

    def take(self, claims: Sequence[Claim]) -> None:
        """Start these jobs, now or when others have ended. Once closed, return them unstarted.

        After a drop it is unknown whether they had started, so none is returned as unstarted.
        """
        for claim in () if self._dropped else claims:
            self._held[claim.key] = claim
            if claim.worker_deaths:
                self._suspects.add(claim.key)
            if self._closing:
                self._outcomes.append(AttemptOutcome(claim, "back"))
            elif len(self._running) < self._concurrency:
                self._start(claim)
            else:
                self._prefetched.append(claim)

    def collect(self) -> tuple[list[Result], list[AttemptOutcome]]:
        """Return the outcomes since the last call. Their jobs are no longer held."""
        results, self._results = self._results, []
        outcomes, self._outcomes = self._outcomes, []
        for claim in [result.claim for result in results] + [outcome.claim for outcome in outcomes]:
            self._held.pop(claim.key, None)
            self._suspects.discard(claim.key)
        return results, outcomes

    def cancel(self, jobs: set[ClaimKey]) -> None:
        """Cancel these jobs, which are no longer wanted. Return those that have not started."""
        for running in list(self._running.values()):
            if running.claim.key in jobs:
                running.cancel()
        self._give_back([claim for claim in self._prefetched if claim.key in jobs])

    def close(self) -> None:
        """Take no more jobs, and return those that have not started."""
        self._closing = True
        self._give_back(list(self._prefetched))
        self._on_outcome()

    def interrupt(self) -> None:
        """Cancel the running jobs, which returns them."""
        for running in self._running.values():
            running.cancel()

    def drop(self) -> None:
        """Forget all jobs: they no longer belong to this worker."""
        self._closing = self._dropped = True
        self._held.clear()
        self._prefetched.clear()
        self.interrupt()
        self._running.clear()
        self._on_outcome()

    def _give_back(self, claims: Sequence[Claim]) -> None:
        """Return prefetched jobs that have not started."""
        for claim in claims:
            self._prefetched.remove(claim)
            self._outcomes.append(AttemptOutcome(claim, "back"))
        if claims:
            self._on_outcome()

    def _start(self, claim: Claim) -> None:
        self._last_start_at = time.monotonic()
        task = asyncio.get_running_loop().create_task(self._run_job(claim))
        deadline = time.monotonic() + self._runner.get_timeout(claim) + START_TIMEOUT
        self._running[claim.key] = _RunningJob(claim, task, deadline)
        if self._check_timer is None:
            self._checked_at = time.monotonic()
            self._schedule_check(deadline)

    async def _run_job(self, claim: Claim) -> None:
        began = time.monotonic()
        try:
            outcome = await self._runner.run(claim, self._on_step_start)
        except asyncio.CancelledError:
            outcome = None
        except BaseException as error:  # noqa: BLE001  (a job must never be held and forgotten)
            outcome = self._runner.build_crash_outcome(claim, error)
        seconds = time.monotonic() - began
        self._mean_seconds += 0.05 * (seconds - self._mean_seconds) + 1e-9
        running = self._running.get(claim.key)
        if running is None:  # abandoned, or dropped
            return
        if running.timed_out:
            outcome = self._build_timeout_outcome(running)
        elif outcome is None and running.cancelled:
            outcome = AttemptOutcome(claim, "interrupted", code="INTERRUPTED")
        elif outcome is None:
            outcome = self._runner.build_crash_outcome(claim, RuntimeError("the step cancelled its own task"))
        elif running.has_begun and time.monotonic() > running.deadline + CANCEL_GRACE:
            # It blocked the loop, so it could not be cancelled.
            outcome = self._runner.build_timeout_outcome(claim, BLOCKED_LOOP_ADVICE)
        self._finish(outcome)

    def _on_step_start(self, claim: Claim) -> None:
        """Start the timeout now: until now the attempt waited for the database, a file or a child process."""
        if running := self._running.get(claim.key):
            running.has_begun = True
            running.deadline = time.monotonic() + self._runner.get_timeout(claim)
            # Not after two deaths: the next quarantines it, and must not involve another suspect.
            if claim.worker_deaths == 1:
                asyncio.get_running_loop().call_later(SUSPECT_TRIAL, self._suspects.discard, claim.key)

    def _build_timeout_outcome(self, running: _RunningJob, advice: str = "") -> AttemptOutcome:
        """Return the outcome of a timeout. A job that has not started is returned unstarted."""
        if not running.has_begun:
            return AttemptOutcome(running.claim, "back", delay=UNAVAILABLE_DELAY)
        return self._runner.build_timeout_outcome(running.claim, advice)

    def _finish(self, outcome: Result | AttemptOutcome) -> None:
        del self._running[outcome.claim.key]
        if isinstance(outcome, Result):
            self._results.append(outcome)
        else:
            self._outcomes.append(outcome)
        self._on_outcome()
        if self._prefetched:
            self._start(self._prefetched.popleft())

    def _schedule_check(self, nearest: float) -> None:
        pause = min(MAX_CHECK_SECONDS, max(MIN_CHECK_SECONDS, nearest - time.monotonic()))
        self._check_timer = asyncio.get_running_loop().call_later(pause, self._check_timeouts)

    def _check_timeouts(self) -> None:
        """Cancel jobs that exceeded their timeout, and abandon those that ignore the cancellation."""
        self._check_timer = None
        now = self._checked_at = time.monotonic()
        for running in list(self._running.values()):
            if now >= running.deadline and not running.timed_out:
                running.timed_out = True
                running.cancel()
            elif running.timed_out and now >= running.deadline + CANCEL_GRACE + CALL_GRACE * (
                running.claim.looking > 0
            ):
                self._finish(self._build_timeout_outcome(running, IGNORED_CANCEL_ADVICE))
        if self._prefetched and now - self._last_start_at > PREFETCH_STALL:
            # Jobs are slower than estimated: other workers may be free, and prefetched jobs must not occupy pool slots.
            self._mean_seconds = max(self._mean_seconds, 2 * self._concurrency * SECONDS_AHEAD)
            self._give_back(list(self._prefetched))
        if self._running:
            self._schedule_check(min(running.deadline for running in self._running.values()))


class _RunningJob:
    __slots__ = ("cancelled", "claim", "deadline", "has_begun", "task", "timed_out")

    def __init__(self, claim: Claim, task: asyncio.Task[None], deadline: float) -> None:
        self.claim = claim
        self.task = task
        self.deadline = deadline
        self.has_begun = False
        self.timed_out = False
        self.cancelled = False  # by the worker

    def cancel(self) -> None:
        self.cancelled = True
        self.task.cancel()
