"""The jobs that a worker holds: running jobs, prefetched jobs, and outcomes to report with the next call."""

from __future__ import annotations

import asyncio
import time
from collections import deque
from collections.abc import Sequence
from datetime import timedelta

from retoma.engine import outcomes
from retoma.engine.claim_protocol import Claim
from retoma.engine.outcomes import Outcome
from retoma.identifiers import ClaimKey
from retoma.records import JobStack
from retoma.worker.attempt_span import AttemptSpan, record_span
from retoma.worker.context_backend import CALL_GRACE
from retoma.worker.step_runner import JobAttempt, StepRunner

UNDEFINED_STEP_DELAY = timedelta(seconds=30)
MAX_PREFETCH = 480
MAX_STACKS = 200  # jobs, of which an operator sees where they are
SECONDS_AHEAD = 0.05
INITIAL_MEAN_SECONDS = 1.0  # assumed duration of a job until one has ended
MAX_CHECK_SECONDS = 0.1  # between two checks for timeouts
MIN_CHECK_SECONDS = 0.01
MAX_BLOCK_SECONDS = 5.0  # past a timeout, until the worker gives up a blocked loop
SUSPECT_TRIAL = 1.0  # after which a suspect is trusted: a job that kills its worker does so soon
PREFETCH_STALL = 2.0  # without starting a job, until prefetched jobs are returned for other workers
CANCEL_GRACE = 3.0  # for a job to end after its cancellation
IGNORED_CANCEL_ADVICE = "; it ignored its cancellation: do not suppress CancelledError, or set isolation= for the step"
BLOCKED_LOOP_ADVICE = "; it blocked the event loop: define the step with `def`, so it runs in its own thread"


class Executor:
    """Runs up to `concurrency` jobs, and prefetches jobs that it can start within a moment.

    A job is held from `take` until its outcome is collected. Its key includes the fence, so a job that was lost and
    claimed again counts as another job. Each outcome sets the event `changed`.
    """

    def __init__(self, runner: StepRunner, concurrency: int, changed: asyncio.Event) -> None:
        self._runner = runner
        self._concurrency = concurrency
        self._changed = changed
        self._held: set[ClaimKey] = set()
        self._running: dict[ClaimKey, _RunningJob] = {}
        self._prefetched: deque[Claim] = deque()
        self._suspects: set[ClaimKey] = set()
        self._outcomes: list[Outcome] = []
        self._spans: dict[ClaimKey, AttemptSpan] = {}  # of attempts that have ended
        self._mean_seconds = INITIAL_MEAN_SECONDS
        self._check_timer: asyncio.TimerHandle | None = None
        self._checked_at = time.monotonic()
        self._last_start_at = time.monotonic()
        self._closing = False
        self._dropped = False

    @property
    def free_capacity(self) -> int:
        """How many more jobs to claim: those that can start now, and some to prefetch if jobs are quick."""
        if self._closing:
            return 0
        ahead = min(MAX_PREFETCH, int(self._concurrency * SECONDS_AHEAD / self._mean_seconds))
        return self._concurrency + ahead - len(self._held)

    @property
    def has_outcomes(self) -> bool:
        return bool(self._outcomes)

    @property
    def is_idle(self) -> bool:
        return not self._held

    @property
    def has_suspect(self) -> bool:
        """Whether it holds a job that was running when a worker died, and may have killed it."""
        return any(not self._is_trusted(self._running.get(key)) for key in self._suspects)

    @property
    def running_jobs(self) -> list[ClaimKey]:
        """Jobs that may be cancelled."""
        return [*self._running, *(claim.key for claim in self._prefetched)]

    @property
    def overdue_steps(self) -> list[str]:
        """Steps past their timeout that cannot be cancelled, because one of them blocks the loop. For other threads."""
        now = time.monotonic()
        if now - self._checked_at < MAX_BLOCK_SECONDS:
            return []
        running = [job.attempt for job in tuple(self._running.values())]
        return [attempt.claim.step for attempt in running if now > attempt.deadline + MAX_BLOCK_SECONDS]

    def list_stacks(self, loop_thread: int) -> list[JobStack]:
        """Return where each running job is now. For other threads."""
        now = time.monotonic()
        return [
            JobStack(
                run=job.attempt.claim.run,
                step=job.attempt.claim.step,
                item=job.attempt.claim.item,
                revision=job.attempt.claim.revision,
                attempt=job.attempt.claim.attempt,
                seconds=None if job.attempt.started_at is None else round(now - job.attempt.started_at, 3),
                stack=job.attempt.format_stack(job.task, loop_thread),
            )
            for job in tuple(self._running.values())[:MAX_STACKS]
            if job.task is not None
        ]

    def holds(self, claim: Claim) -> bool:
        return claim.key in self._held

    def take(self, claims: Sequence[Claim]) -> None:
        """Start these jobs, now or when others have ended. Once closed, return them unstarted.

        After a drop it is unknown whether they had started, so none is returned as unstarted.
        """
        for claim in () if self._dropped else claims:
            key = claim.key
            self._held.add(key)
            if claim.worker_deaths:
                self._suspects.add(key)
            if self._closing:
                self._report(outcomes.Returned(claim))
            else:
                self._prefetched.append(claim)
        self._start_prefetched()

    def collect(self) -> list[Outcome]:
        """Return the outcomes since the last call. Their jobs are no longer held."""
        collected, self._outcomes = self._outcomes, []
        ended = {outcome.claim.key for outcome in collected}
        self._held -= ended
        self._suspects -= ended
        return collected

    def record_spans(self, recorded: Sequence[Outcome]) -> None:
        """Trace attempts whose outcomes the database has. The outcome may differ from the one that was collected."""
        for outcome in recorded if self._spans else ():
            if (span := self._spans.pop(outcome.claim.key, None)) is not None:
                record_span(span, outcome)

    def cancel(self, jobs: set[ClaimKey]) -> None:
        """Cancel these jobs, which are no longer wanted. Return those that have not started."""
        for key, running in self._running.items():
            if key in jobs:
                running.cancel()
        self._give_back([claim for claim in self._prefetched if claim.key in jobs])

    def close(self) -> None:
        """Take no more jobs, and return those that have not started."""
        self._closing = True
        self._give_back(list(self._prefetched))
        self._changed.set()

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
        self._changed.set()

    def _give_back(self, claims: Sequence[Claim]) -> None:
        """Return prefetched jobs that have not started."""
        for claim in claims:
            self._prefetched.remove(claim)
            self._report(outcomes.Returned(claim))

    def _start_prefetched(self) -> None:
        while self._prefetched and len(self._running) < self._concurrency:
            claim = self._prefetched.popleft()
            if attempt := self._runner.prepare(claim):
                self._start(attempt)
            else:
                self._report(outcomes.Returned(claim, UNDEFINED_STEP_DELAY, "UNDEFINED_STEP"))

    def _start(self, attempt: JobAttempt) -> None:
        self._last_start_at = time.monotonic()
        job = self._running[attempt.claim.key] = _RunningJob(attempt)
        job.task = asyncio.get_running_loop().create_task(self._run_job(job))
        if self._check_timer is None:
            self._checked_at = self._last_start_at
            self._schedule_check(attempt.deadline)

    async def _run_job(self, job: _RunningJob) -> None:
        began, attempt = time.monotonic(), job.attempt
        outcome: Outcome | None
        try:
            outcome = await attempt.run()
        except asyncio.CancelledError:
            outcome = None
        except BaseException as error:  # noqa: BLE001  (a job must never be held and forgotten)
            outcome = attempt.build_crash_outcome(error)
        now = time.monotonic()
        self._mean_seconds += 0.05 * (now - began - self._mean_seconds) + 1e-9
        if self._running.get(attempt.claim.key) is not job:  # abandoned, or dropped
            return
        if job.timed_out:
            outcome = attempt.build_timeout_outcome()
        elif outcome is None and job.cancelled:
            outcome = outcomes.Interrupted(attempt.claim)
        elif outcome is None:
            outcome = attempt.build_crash_outcome(RuntimeError("the step cancelled its own task"))
        elif attempt.started_at is not None and now > attempt.deadline + CANCEL_GRACE:
            # It blocked the loop, so it could not be cancelled.
            outcome = attempt.build_timeout_outcome(BLOCKED_LOOP_ADVICE)
        self._finish(outcome)

    def _is_trusted(self, job: _RunningJob | None) -> bool:
        """Return whether a suspect has run for a while. Not after two deaths: the next quarantines it, and must not
        involve another suspect."""
        if job is None or job.attempt.started_at is None or job.attempt.claim.worker_deaths > 1:
            return False
        return time.monotonic() >= job.attempt.started_at + SUSPECT_TRIAL

    def _finish(self, outcome: Outcome) -> None:
        span = self._running.pop(outcome.claim.key).attempt.span
        if span is not None:
            span.ended_at = time.time_ns()
            self._spans[outcome.claim.key] = span
        self._report(outcome)
        self._start_prefetched()

    def _report(self, outcome: Outcome) -> None:
        self._outcomes.append(outcome)
        self._changed.set()

    def _schedule_check(self, nearest: float) -> None:
        pause = min(MAX_CHECK_SECONDS, max(MIN_CHECK_SECONDS, nearest - time.monotonic()))
        self._check_timer = asyncio.get_running_loop().call_later(pause, self._check_timeouts)

    def _check_timeouts(self) -> None:
        """Cancel jobs that exceeded their timeout, and abandon those that ignore the cancellation."""
        self._check_timer = None
        now = self._checked_at = time.monotonic()
        for job in list(self._running.values()):
            attempt = job.attempt
            if now >= attempt.deadline and not job.timed_out:
                job.timed_out = True
                job.cancel()
            elif job.timed_out and now >= attempt.deadline + CANCEL_GRACE + CALL_GRACE * attempt.has_effect_in_progress:
                self._finish(attempt.build_timeout_outcome(IGNORED_CANCEL_ADVICE))
        if self._prefetched and now - self._last_start_at > PREFETCH_STALL:
            # Jobs are slower than estimated: other workers may be free, and prefetched jobs must not occupy pool slots.
            self._mean_seconds = max(self._mean_seconds, 2 * self._concurrency * SECONDS_AHEAD)
            self._give_back(list(self._prefetched))
        if self._running:
            self._schedule_check(min(job.attempt.deadline for job in self._running.values()))


class _RunningJob:
    __slots__ = ("attempt", "cancelled", "task", "timed_out")

    def __init__(self, attempt: JobAttempt) -> None:
        self.attempt = attempt
        self.task: asyncio.Task[None] | None = None
        self.timed_out = False
        self.cancelled = False  # by the worker

    def cancel(self) -> None:
        self.cancelled = True
        if self.task is not None:
            self.task.cancel()
