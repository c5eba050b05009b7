"""Looks at work that goes on outside, for all jobs that are parked: one poller serves all."""

from __future__ import annotations

import asyncio
import importlib
import json
import time
from collections.abc import Awaitable, Callable, Mapping
from contextlib import suppress
from datetime import timedelta
from itertools import count
from typing import Any, TypeVar, get_args

from retoma.define.codec import LARGEST_RESULT, encode_any, size_of
from retoma.define.outside import OutsideState, Report
from retoma.engine.contained import call_contained
from retoma.errors import DatabaseUnavailable, describe_error
from retoma.logs import get_logger
from retoma.store import outside
from retoma.store.database import Database
from retoma.store.outside import Look
from retoma.tracebacks import release_frames
from retoma.worker.attempt import LONGEST_MESSAGE, clean
from retoma.worker.catalog import Catalog

log = get_logger("retoma.outside")
Answer = TypeVar("Answer")
AT_ONCE = 100
PATIENCE = 30.0  # seconds for one answer of the outside
LONGEST_BLOCK = 5.0  # seconds beyond them after which a call blocks the event loop
LEASE = timedelta(seconds=3 * PATIENCE)  # after which another process looks
SENTENCES = {
    "RUN_STOPPED": "its run was stopped",
    "QUEUE_TIMEOUT": "it waited outside for too long before it began",
    "TIMEOUT": "it took too long outside",
}


class Poller:
    """`on_end` is called when something has ended, after the commit.

    A poll that was running when its worker died is a suspect. A worker holds one suspect at a time, be it a poll or a
    step: `holds_suspect` says whether it holds a step that is one.
    """

    def __init__(
        self,
        database: Database,
        catalog: Catalog,
        on_end: Callable[[], None],
        holds_suspect: Callable[[], bool] = lambda: False,
    ) -> None:
        self.worker: int | None = None  # known when the worker has registered
        self._database = database
        self._catalog = catalog
        self._on_end = on_end
        self._holds_suspect = holds_suspect
        self._due = asyncio.Event()
        self._looking: set[asyncio.Task[None]] = set()
        self._suspects = 0  # calls of suspects under way, or being claimed
        self._calls: dict[int, tuple[str, float]] = {}  # step and deadline of each call under way
        self._numbers = count()
        self._watch: asyncio.TimerHandle | None = None
        self._watched_at = 0.0

    @property
    def has_suspect(self) -> bool:
        """Whether a poll is under way that may kill this worker, as it may have killed another."""
        return self._suspects > 0

    @property
    def overdue(self) -> list[str]:
        """Steps whose poll blocks the event loop beyond its time. For other threads."""
        now = time.monotonic()
        if now - self._watched_at < LONGEST_BLOCK:
            return []
        return [step for step, deadline in tuple(self._calls.values()) if now > deadline + LONGEST_BLOCK]

    def wake(self) -> None:
        """Something is due."""
        self._due.set()

    async def run(self) -> None:
        """Look whenever something is due, until cancelled. What is then under way is looked at again by others."""
        try:
            while True:
                await self._due.wait()
                self._due.clear()
                try:
                    await self._take()
                except DatabaseUnavailable as error:
                    log.warning("outside work waits for the database", error=error)
        finally:
            for task in self._looking:
                task.cancel()
            await asyncio.gather(*self._looking, return_exceptions=True)

    async def look(self) -> int:
        """Look at what is due now, to the end; gives how many were looked at. For tests."""
        looks = await self._claim(AT_ONCE)
        await asyncio.gather(*map(self._look_at, looks))
        return len(looks)

    async def _take(self) -> None:
        room = AT_ONCE - len(self._looking)
        if room > 0:
            for look in await self._claim(room):
                task = asyncio.ensure_future(self._look_at(look))
                self._looking.add(task)
                task.add_done_callback(self._ended)

    def _ended(self, task: asyncio.Task[None]) -> None:
        if len(self._looking) == AT_ONCE:
            self.wake()  # more may have been due than there was room for
        self._looking.discard(task)
        if not task.cancelled() and (error := task.exception()) is not None:
            log.error("a look failed; it is made again", error=error, exc_info=error)
            release_frames(error)

    async def _claim(self, room: int) -> list[Look]:
        suspect = not (self.has_suspect or self._holds_suspect())
        self._suspects += suspect
        try:
            looks = await outside.due(self._database, self._catalog.served, room, LEASE, self.worker, suspect=suspect)
        finally:
            self._suspects -= suspect
        # From now on, not from when its task begins: the next claim may come before.
        self._suspects += sum(look.is_called and look.deaths > 0 for look in looks)
        return looks

    async def _look_at(self, look: Look) -> None:
        try:
            report, result, failed = await self._answer(look)
        finally:
            self._suspects -= look.is_called and look.deaths > 0
        report = _judged(look, report)
        with suppress(DatabaseUnavailable):  # the next look comes by itself
            recorded = await outside.record(
                self._database,
                look,
                state=report.state,
                progress=report.progress,
                result=result,
                error=_error(report),
                failed=failed,
                stopping=look.stop is not None,
            )
            if recorded and report.is_end:
                self._on_end()

    async def _answer(self, look: Look) -> tuple[Report, str | None, bool]:
        """Return what the outside says, its result as JSON, and whether it failed to say anything."""
        if not look.is_called:
            return Report(look.state), None, True
        if look.stop is not None and look.cancel is not None:
            await self._cancel(look)
        if look.poll is None:
            return *_taken(look, _by_callback(look)), False
        try:
            return *await self._call(look, lambda: self._poll(look)), False
        except Exception as error:  # noqa: BLE001  (whatever the provider's client met, the work goes on)
            log.warning("no word from outside", run=str(look.run), step=look.step, item=look.item, error=error)
            release_frames(error)
            return Report(look.state), None, True

    async def _poll(self, look: Look) -> tuple[Report, str | None]:
        return _taken(look, await self._function_at(look.poll or "")(json.loads(look.handle)))

    async def _cancel(self, look: Look) -> None:
        try:
            await self._call(look, lambda: self._function_at(look.cancel or "")(json.loads(look.handle)))
        except Exception as error:  # noqa: BLE001  (it is told again at the next look)
            log.warning("could not be cancelled", run=str(look.run), step=look.step, item=look.item, error=error)
            release_frames(error)

    def _function_at(self, place: str) -> Callable[[Any], Any]:
        return found_at(place, self._catalog.resources)

    async def _call(self, look: Look, call: Callable[[], Awaitable[Answer]]) -> Answer:
        number = next(self._numbers)
        self._calls[number] = (look.step, time.monotonic() + PATIENCE)
        if self._watch is None:
            self._watch_loop()
        try:
            return await call_contained(call, PATIENCE)
        finally:
            del self._calls[number]

    def _watch_loop(self) -> None:
        """Note that the event loop is not blocked, as long as calls are under way."""
        self._watched_at = time.monotonic()
        self._watch = asyncio.get_running_loop().call_later(1.0, self._watch_loop) if self._calls else None


def found_at(place: str, resources: Mapping[str, Any]) -> Callable[[Any], Any]:
    """The function that `place_of` wrote down."""
    module, colon, name = place.partition(":")
    owner: Any = importlib.import_module(module) if colon else None
    if not colon:
        resource, _, name = place.partition(".")
        owner = resources[resource]
    for part in name.split("."):
        owner = getattr(owner, part)
    function: Callable[[Any], Any] = owner
    return function


def _by_callback(look: Look) -> Report:
    if look.called:
        return Report("succeeded", result=json.loads(look.called_with or "null"))
    return Report("cancelled" if look.stop else look.state)


def _taken(look: Look, answer: Any) -> tuple[Report, str | None]:
    """The report, with its result as JSON. An answer that cannot be taken is a failure: it would be the same again."""
    try:
        return _read(look, answer)
    except BaseException as error:  # noqa: BLE001  (an answer is application code, too)
        return _unreadable(f"{look.poll} gave what cannot be read: {describe_error(error)}"), None


def _read(look: Look, answer: Any) -> tuple[Report, str | None]:
    if not isinstance(answer, Report) or answer.state not in get_args(OutsideState):
        return _unreadable(f"{look.poll} gave {answer!r:.80}: give a retoma.Report with one of its states"), None
    if answer.state != "succeeded":
        code, message = (None if said is None else str(said) for said in (answer.code, answer.message))
        return Report(answer.state, code=code, message=message, progress=_progress(answer)), None
    try:
        result = encode_any(answer.result)
    except Exception as error:  # noqa: BLE001  (whatever there is in it)
        return _unreadable(f"its result cannot be written as JSON: {error}"), None
    if (size := size_of(result)) > LARGEST_RESULT:
        said = f"its result is {size:,} bytes of JSON, over the limit of {LARGEST_RESULT:,}"
        return Report(
            "failed", code="RESULT_TOO_LARGE", message=f"{said}: keep it in a file and give where it is"
        ), None
    return Report("succeeded", progress=_progress(answer)), result


def _unreadable(said: str) -> Report:
    return Report("failed", code="UNREADABLE_REPORT", message=said)


def _judged(look: Look, report: Report) -> Report:
    """What was told to end has ended for that reason, unless it was done all the same; in the end nobody waits."""
    if look.stop is None or report.state == "succeeded":
        return report
    if report.is_end:
        return Report(report.state, code=look.stop, message=SENTENCES[look.stop])
    if look.given_up:
        sentence = f"{SENTENCES[look.stop]}, and the outside did not confirm its end"
        return Report("lost", code=look.stop, message=sentence)
    return report


def _progress(report: Report) -> float | None:
    """None unless it goes from 0 to 1: how far it is decides nothing."""
    told = report.progress
    return told if isinstance(told, int | float) and 0 <= told <= 1 else None


def _error(report: Report) -> str | None:
    if not report.is_end or report.state == "succeeded":
        return None
    code, message = report.code or report.state.upper(), report.message or f"it ended as {report.state}"
    return json.dumps({"code": clean(code), "message": clean(message)[:LONGEST_MESSAGE]})
