"""What a worker holds: jobs that run, jobs taken ahead, and outcomes that wait for the next call."""

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
INITIAL_MEAN_SECONDS = 1.0  # seconds that a job takes, before any has ended
MAX_CHECK_SECONDS = 0.1  # seconds between two looks at who has outlived its timeout
MIN_CHECK_SECONDS = 0.01
START_TIMEOUT = 60.0  # seconds, beyond its timeout, until the body of a job must have begun
MAX_BLOCK_SECONDS = 5.0  # seconds past a timeout after which a blocked loop is given up
SUSPECT_TRIAL = 1.0  # seconds after which a suspect is trusted: what kills its worker does so soon
PREFETCH_STALL = 2.0  # seconds without a beginning after which what was taken ahead is for others
CANCEL_GRACE = 3.0  # seconds that a job has to obey its cancellation
IGNORED_CANCEL_ADVICE = "; it ignored its cancellation: let CancelledError pass, or give the step isolation"
BLOCKED_LOOP_ADVICE = "; it blocked the event loop: make the step a plain `def`, so that it has a thread of its own"


class Executor:
    """Runs up to `concurrency` jobs, and takes ahead what will be done in a moment.

    A job is held from `take` until its outcome is collected. Its handle has its fence, so that a job that was lost
    and claimed again is another one.
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
        """How many more jobs to take: those that can begin now, and a few ahead if jobs are quick."""
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
        """Whether a job is held that was running when a worker died, and that may yet be what killed it."""
        return bool(self._suspects)

    @property
    def running_jobs(self) -> list[ClaimKey]:
        """Jobs that could be told to end: what may only be found, to be ended outside, is left to do so."""
        claims = [*(running.claim for running in self._running.values()), *self._prefetched]
        return [claim.key for claim in claims if not claim.last]

    @property
    def overdue_steps(self) -> list[str]:
        """Steps past their time that nobody could stop, because one of them blocks the loop. For other threads."""
        now = time.monotonic()
        if now - self._checked_at < MAX_BLOCK_SECONDS:
            return []
        return [one.claim.step for one in tuple(self._running.values()) if now > one.deadline + MAX_BLOCK_SECONDS]

    def holds(self, claim: Claim) -> bool:
        return claim.key in self._held

    def take(self, claims: Sequence[Claim]) -> None:
        """Begin these jobs, now or when others have ended. Once closed, they go back as they came.

        After a drop nobody knows whether they had begun, so that none goes back as if it had not.
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
        """The outcomes since the last call; their jobs are no longer held."""
        results, self._results = self._results, []
        setbacks, self._outcomes = self._outcomes, []
        for claim in [outcome.claim for outcome in results] + [outcome.claim for outcome in setbacks]:
            self._held.pop(claim.key, None)
            self._suspects.discard(claim.key)
        return results, setbacks

    def cancel(self, jobs: set[ClaimKey]) -> None:
        """Tell these jobs that they are not wanted any more. Those that have not begun go back."""
        for running in list(self._running.values()):
            if running.claim.key in jobs:
                running.cancel()
        self._give_back([claim for claim in self._prefetched if claim.key in jobs])

    def close(self) -> None:
        """Take nothing more, and give back what has not begun."""
        self._closing = True
        self._give_back(list(self._prefetched))
        self._on_outcome()

    def interrupt(self) -> None:
        """Give back what still runs."""
        for running in self._running.values():
            running.cancel()

    def drop(self) -> None:
        """Forget everything: it is no longer ours."""
        self._closing = self._dropped = True
        self._held.clear()
        self._prefetched.clear()
        self.interrupt()
        self._running.clear()
        self._on_outcome()

    def _give_back(self, claims: Sequence[Claim]) -> None:
        """What was taken ahead and has not begun."""
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
            # Nobody could tell it to stop.
            outcome = self._runner.build_timeout_outcome(claim, BLOCKED_LOOP_ADVICE)
        self._finish(outcome)

    def _on_step_start(self, claim: Claim) -> None:
        """Only now its time begins: until now it waited for the database, a file or a child process."""
        if running := self._running.get(claim.key):
            running.has_begun = True
            running.deadline = time.monotonic() + self._runner.get_timeout(claim)
            # Not after two deaths: the next is its last, and it takes no other suspect with it.
            if claim.worker_deaths == 1:
                asyncio.get_running_loop().call_later(SUSPECT_TRIAL, self._suspects.discard, claim.key)

    def _build_timeout_outcome(self, running: _RunningJob, advice: str = "") -> AttemptOutcome:
        """What has not begun goes back as it came."""
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
        """Cancel what has outlived its timeout, and leave behind what ignores that."""
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
            # They are slower than was thought: others may have a hand free, and slots of pools are not for waiting.
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
        self.timed_out = False  # that its time is over
        self.cancelled = False  # by us

    def cancel(self) -> None:
        self.cancelled = True
        self.task.cancel()
