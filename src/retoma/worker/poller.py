"""Looks at work that goes on outside, for all jobs that are parked: one poller serves all."""

from __future__ import annotations

import asyncio
import importlib
import json
from collections.abc import Callable, Mapping
from contextlib import suppress
from datetime import timedelta
from typing import Any, get_args

from retoma.define.codec import LARGEST_RESULT, encode_any, size_of
from retoma.define.outside import OutsideState, Report
from retoma.errors import DatabaseUnavailable
from retoma.logs import get_logger
from retoma.store import outside
from retoma.store.database import Database
from retoma.store.outside import Look
from retoma.tracebacks import release_frames
from retoma.worker.attempt import LONGEST_MESSAGE, clean
from retoma.worker.catalog import Catalog

log = get_logger("retoma.outside")
AT_ONCE = 100
PATIENCE = 30.0  # seconds for one answer of the outside
LEASE = timedelta(seconds=3 * PATIENCE)  # after which another process looks
SENTENCES = {
    "RUN_STOPPED": "its run was stopped",
    "QUEUE_TIMEOUT": "it waited outside for too long before it began",
    "TIMEOUT": "it took too long outside",
}


class Poller:
    """`on_end` is called when something has ended, after the commit."""

    def __init__(self, database: Database, catalog: Catalog, on_end: Callable[[], None]) -> None:
        self._database = database
        self._catalog = catalog
        self._on_end = on_end
        self._due = asyncio.Event()
        self._looking: set[asyncio.Task[None]] = set()

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
        return await outside.due(self._database, self._catalog.served, room, LEASE)

    async def _look_at(self, look: Look) -> None:
        answer, failed = await self._answer(look)
        report, result = _taken(look, answer)
        report = _judged(look, report)
        with suppress(DatabaseUnavailable):  # the next look comes by itself
            recorded = await outside.record(
                self._database,
                look,
                state=report.state,
                progress=_progress(report),
                result=result,
                error=_error(report),
                failed=failed,
                stopping=look.stop is not None,
            )
            if recorded and report.is_end:
                self._on_end()

    async def _answer(self, look: Look) -> tuple[Any, bool]:
        """What the outside says, and whether it failed to say anything."""
        try:
            async with asyncio.timeout(PATIENCE):
                if look.stop is not None and look.cancel is not None:
                    await self._cancel(look)
                if look.poll is None:
                    return _by_callback(look), False
                return await self._call(look.poll, look), False
        except Exception as error:  # noqa: BLE001  (whatever the provider's client met, the work goes on)
            log.warning("no word from outside", run=str(look.run), step=look.step, item=look.item, error=error)
            release_frames(error)
            return Report(look.state), True

    async def _cancel(self, look: Look) -> None:
        try:
            await self._call(look.cancel or "", look)
        except Exception as error:  # noqa: BLE001  (it is told again at the next look)
            log.warning("could not be cancelled", run=str(look.run), step=look.step, item=look.item, error=error)
            release_frames(error)

    async def _call(self, place: str, look: Look) -> Any:
        return await found_at(place, self._catalog.resources)(json.loads(look.handle))


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
    if not isinstance(answer, Report) or answer.state not in get_args(OutsideState):
        return _unreadable(f"{look.poll} gave {answer!r:.80}: give a retoma.Report with one of its states"), None
    if answer.state != "succeeded":
        return answer, None
    try:
        result = encode_any(answer.result)
    except Exception as error:  # noqa: BLE001  (whatever there is in it)
        return _unreadable(f"its result cannot be written as JSON: {error}"), None
    if (size := size_of(result)) > LARGEST_RESULT:
        said = f"its result is {size:,} bytes of JSON, over the limit of {LARGEST_RESULT:,}"
        return Report(
            "failed", code="RESULT_TOO_LARGE", message=f"{said}: keep it in a file and give where it is"
        ), None
    return answer, result


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
    code, message = str(report.code or report.state.upper()), str(report.message or f"it ended as {report.state}")
    return json.dumps({"code": clean(code), "message": clean(message)[:LONGEST_MESSAGE]})
