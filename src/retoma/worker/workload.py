"""What a worker holds: jobs that run, jobs taken ahead, and outcomes that wait for the next call."""

from __future__ import annotations

import asyncio
import time
from collections import deque
from collections.abc import Awaitable, Callable, Sequence
from uuid import UUID

from retoma.engine.exchange import Claim, Handle, Result, SetBack

LARGEST_PREFETCH = 480
SECONDS_AHEAD = 0.05
FIRST_GUESS = 1.0  # seconds that a job takes, before any has ended

Run = Callable[[Claim], Awaitable[Result | SetBack]]


class Workload:
    """Runs up to `concurrency` jobs with `run`, and takes ahead what will be done in a moment.

    A job is held from `take` until its outcome is collected; its handle has its fence, so that a job that was lost
    and claimed again is another.
    """

    def __init__(self, run: Run, concurrency: int, on_outcome: Callable[[], None]) -> None:
        self._run = run
        self._concurrency = concurrency
        self._on_outcome = on_outcome
        self._held: dict[Handle, Claim] = {}
        self._running: dict[Handle, asyncio.Task[None]] = {}
        self._ahead: deque[Claim] = deque()
        self._suspects: set[Handle] = set()
        self._results: list[Result] = []
        self._setbacks: list[SetBack] = []
        self._mean_seconds = FIRST_GUESS
        self._closing = False

    @property
    def room(self) -> int:
        """How many more jobs to take: those that can begin now, and a few ahead if jobs are quick."""
        if self._closing:
            return 0
        ahead = min(LARGEST_PREFETCH, int(self._concurrency * SECONDS_AHEAD / self._mean_seconds))
        return self._concurrency + ahead - len(self._held)

    @property
    def has_outcomes(self) -> bool:
        return bool(self._results or self._setbacks)

    @property
    def is_idle(self) -> bool:
        return not self._held

    @property
    def has_suspect(self) -> bool:
        """Whether a job is held that was running when a worker died."""
        return bool(self._suspects)

    @property
    def runs(self) -> list[UUID]:
        """The runs that jobs at work belong to."""
        return list({claim.run for claim in self._held.values()})

    def holds(self, claim: Claim) -> bool:
        return claim.handle in self._held

    def take(self, claims: Sequence[Claim]) -> None:
        """Begin these jobs, now or when others have ended. Once closed, they go back as they came."""
        for claim in claims:
            self._held[claim.handle] = claim
            if claim.deaths:
                self._suspects.add(claim.handle)
            if self._closing:
                self._setbacks.append(SetBack(claim, "back"))
            elif len(self._running) < self._concurrency:
                self._begin(claim)
            else:
                self._ahead.append(claim)

    def collect(self) -> tuple[list[Result], list[SetBack]]:
        """The outcomes since the last call; their jobs are no longer held."""
        results, self._results = self._results, []
        setbacks, self._setbacks = self._setbacks, []
        for claim in [outcome.claim for outcome in results] + [outcome.claim for outcome in setbacks]:
            self._held.pop(claim.handle, None)
            self._suspects.discard(claim.handle)
        return results, setbacks

    def cancel(self, runs: set[UUID]) -> None:
        """Tell the jobs of these runs that they are not wanted any more."""
        for handle, task in list(self._running.items()):
            if handle[0] in runs:
                task.cancel()

    def close(self) -> None:
        """Take nothing more, and give back what has not begun."""
        self._closing = True
        while self._ahead:
            self._setbacks.append(SetBack(self._ahead.popleft(), "back"))
        self._on_outcome()

    def interrupt(self) -> None:
        """Give back what still runs."""
        for task in self._running.values():
            task.cancel()

    def drop(self) -> None:
        """Forget everything: it is no longer ours."""
        self._closing = True
        self._held.clear()
        self._ahead.clear()
        self.interrupt()
        self._running.clear()
        self._on_outcome()

    def _begin(self, claim: Claim) -> None:
        self._running[claim.handle] = asyncio.ensure_future(self._work(claim))

    async def _work(self, claim: Claim) -> None:
        began = time.perf_counter()
        try:
            outcome = await self._run(claim)
        except asyncio.CancelledError:
            outcome = SetBack(claim, "interrupted", code="INTERRUPTED")
        self._mean_seconds += 0.05 * (time.perf_counter() - began - self._mean_seconds) + 1e-9
        if self._running.pop(claim.handle, None) is None:
            return
        if isinstance(outcome, Result):
            self._results.append(outcome)
        else:
            self._setbacks.append(outcome)
        self._on_outcome()
        if self._ahead:
            self._begin(self._ahead.popleft())
