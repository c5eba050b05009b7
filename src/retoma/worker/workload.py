"""What a worker holds: jobs that run, jobs taken ahead, and outcomes that wait for the next call."""

from __future__ import annotations

import asyncio
import time
from collections import deque
from collections.abc import Callable, Sequence

from retoma.engine.exchange import Claim, Result, SetBack
from retoma.identifiers import Handle
from retoma.worker.desk import LAST_WORDS
from retoma.worker.runner import UNAVAILABLE_DELAY, Runner

LARGEST_PREFETCH = 480
SECONDS_AHEAD = 0.05
FIRST_GUESS = 1.0  # seconds that a job takes, before any has ended
LONGEST_WATCH = 0.1  # seconds between two looks at who has outlived its timeout
SHORTEST_WATCH = 0.01
LONGEST_START = 60.0  # seconds, beyond its timeout, until the body of a job must have begun
LONGEST_BLOCK = 5.0  # seconds past a timeout after which a blocked loop is given up
TRIAL = 1.0  # seconds after which a suspect is trusted: what kills its worker does so soon
STALL = 2.0  # seconds without a beginning after which what was taken ahead is for others
GRACE = 3.0  # seconds that a job has to obey its cancellation
IGNORED = "; it ignored its cancellation: let CancelledError pass, or give the step isolation"
BLOCKED = "; it blocked the event loop: make the step a plain `def`, so that it has a thread of its own"


class Workload:
    """Runs up to `concurrency` jobs, and takes ahead what will be done in a moment.

    A job is held from `take` until its outcome is collected. Its handle has its fence, so that a job that was lost
    and claimed again is another one.
    """

    def __init__(self, runner: Runner, concurrency: int, on_outcome: Callable[[], None]) -> None:
        self._runner = runner
        self._concurrency = concurrency
        self._on_outcome = on_outcome
        self._held: dict[Handle, Claim] = {}
        self._running: dict[Handle, _Running] = {}
        self._ahead: deque[Claim] = deque()
        self._suspects: set[Handle] = set()
        self._results: list[Result] = []
        self._setbacks: list[SetBack] = []
        self._mean_seconds = FIRST_GUESS
        self._watch: asyncio.TimerHandle | None = None
        self._looked_at = time.monotonic()
        self._began_at = time.monotonic()
        self._closing = False
        self._dropped = False

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
        """Whether a job is held that was running when a worker died, and that may yet be what killed it."""
        return bool(self._suspects)

    @property
    def at_work(self) -> list[Handle]:
        """Jobs that could be told to end: what may only be found, to be ended outside, is left to do so."""
        claims = [*(running.claim for running in self._running.values()), *self._ahead]
        return [claim.handle for claim in claims if not claim.last]

    @property
    def overdue(self) -> list[str]:
        """Steps past their time that nobody could stop, because one of them blocks the loop. For other threads."""
        now = time.monotonic()
        if now - self._looked_at < LONGEST_BLOCK:
            return []
        return [one.claim.step for one in tuple(self._running.values()) if now > one.deadline + LONGEST_BLOCK]

    def holds(self, claim: Claim) -> bool:
        return claim.handle in self._held

    def take(self, claims: Sequence[Claim]) -> None:
        """Begin these jobs, now or when others have ended. Once closed, they go back as they came.

        After a drop nobody knows whether they had begun, so that none goes back as if it had not.
        """
        for claim in () if self._dropped else claims:
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

    def cancel(self, jobs: set[Handle]) -> None:
        """Tell these jobs that they are not wanted any more. Those that have not begun go back."""
        for running in list(self._running.values()):
            if running.claim.handle in jobs:
                running.cancel()
        self._give_back([claim for claim in self._ahead if claim.handle in jobs])

    def close(self) -> None:
        """Take nothing more, and give back what has not begun."""
        self._closing = True
        self._give_back(list(self._ahead))
        self._on_outcome()

    def interrupt(self) -> None:
        """Give back what still runs."""
        for running in self._running.values():
            running.cancel()

    def drop(self) -> None:
        """Forget everything: it is no longer ours."""
        self._closing = self._dropped = True
        self._held.clear()
        self._ahead.clear()
        self.interrupt()
        self._running.clear()
        self._on_outcome()

    def _give_back(self, claims: Sequence[Claim]) -> None:
        """What was taken ahead and has not begun."""
        for claim in claims:
            self._ahead.remove(claim)
            self._setbacks.append(SetBack(claim, "back"))
        if claims:
            self._on_outcome()

    def _begin(self, claim: Claim) -> None:
        self._began_at = time.monotonic()
        task = asyncio.get_running_loop().create_task(self._work(claim))
        deadline = time.monotonic() + self._runner.timeout_of(claim) + LONGEST_START
        self._running[claim.handle] = _Running(claim, task, deadline)
        if self._watch is None:
            self._looked_at = time.monotonic()
            self._watch_again(deadline)

    async def _work(self, claim: Claim) -> None:
        began = time.monotonic()
        try:
            outcome = await self._runner.run(claim, self._body_begins)
        except asyncio.CancelledError:
            outcome = None
        except BaseException as error:  # noqa: BLE001  (a job must never be held and forgotten)
            outcome = self._runner.crashed(claim, error)
        seconds = time.monotonic() - began
        self._mean_seconds += 0.05 * (seconds - self._mean_seconds) + 1e-9
        running = self._running.get(claim.handle)
        if running is None:  # abandoned, or dropped
            return
        if running.told:
            outcome = self._too_late(running)
        elif outcome is None and running.cancelled:
            outcome = SetBack(claim, "interrupted", code="INTERRUPTED")
        elif outcome is None:
            outcome = self._runner.crashed(claim, RuntimeError("the step cancelled its own task"))
        elif running.has_begun and time.monotonic() > running.deadline + GRACE:
            # Nobody could tell it to stop.
            outcome = self._runner.timed_out(claim, BLOCKED)
        self._end(outcome)

    def _body_begins(self, claim: Claim) -> None:
        """Only now its time begins: until now it waited for the database, a file or a child process."""
        if running := self._running.get(claim.handle):
            running.has_begun = True
            running.deadline = time.monotonic() + self._runner.timeout_of(claim)
            # Not after two deaths: the next is its last, and it takes no other suspect with it.
            if claim.deaths == 1:
                asyncio.get_running_loop().call_later(TRIAL, self._suspects.discard, claim.handle)

    def _too_late(self, running: _Running, advice: str = "") -> SetBack:
        """What has not begun goes back as it came."""
        if not running.has_begun:
            return SetBack(running.claim, "back", delay=UNAVAILABLE_DELAY)
        return self._runner.timed_out(running.claim, advice)

    def _end(self, outcome: Result | SetBack) -> None:
        del self._running[outcome.claim.handle]
        if isinstance(outcome, Result):
            self._results.append(outcome)
        else:
            self._setbacks.append(outcome)
        self._on_outcome()
        if self._ahead:
            self._begin(self._ahead.popleft())

    def _watch_again(self, nearest: float) -> None:
        pause = min(LONGEST_WATCH, max(SHORTEST_WATCH, nearest - time.monotonic()))
        self._watch = asyncio.get_running_loop().call_later(pause, self._look)

    def _look(self) -> None:
        """Cancel what has outlived its timeout, and leave behind what ignores that."""
        self._watch = None
        now = self._looked_at = time.monotonic()
        for running in list(self._running.values()):
            if now >= running.deadline and not running.told:
                running.told = True
                running.cancel()
            elif running.told and now >= running.deadline + GRACE + LAST_WORDS * (running.claim.looking > 0):
                self._end(self._too_late(running, IGNORED))
        if self._ahead and now - self._began_at > STALL:
            # They are slower than was thought: others may have a hand free, and slots of pools are not for waiting.
            self._mean_seconds = max(self._mean_seconds, 2 * self._concurrency * SECONDS_AHEAD)
            self._give_back(list(self._ahead))
        if self._running:
            self._watch_again(min(running.deadline for running in self._running.values()))


class _Running:
    __slots__ = ("cancelled", "claim", "deadline", "has_begun", "task", "told")

    def __init__(self, claim: Claim, task: asyncio.Task[None], deadline: float) -> None:
        self.claim = claim
        self.task = task
        self.deadline = deadline
        self.has_begun = False
        self.told = False  # that its time is over
        self.cancelled = False  # by us

    def cancel(self) -> None:
        self.cancelled = True
        self.task.cancel()
