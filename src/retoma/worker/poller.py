"""Looks at work that goes on outside, for all jobs that are parked: one poller serves all."""

from __future__ import annotations

import asyncio
import importlib
import json
from collections.abc import Callable, Mapping
from contextlib import suppress
from datetime import timedelta
from typing import Any

from retoma.define.codec import encode_any
from retoma.define.outside import Report
from retoma.errors import DatabaseUnavailable
from retoma.logs import get_logger
from retoma.store import outside
from retoma.store.database import Database
from retoma.store.outside import Look
from retoma.worker.attempt import LONGEST_MESSAGE, clean
from retoma.worker.catalog import Catalog
from retoma.worker.plan import LARGEST_RESULT

log = get_logger("retoma.outside")
LARGEST_ROUND = 100
AT_ONCE = 20
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
        self._room = asyncio.Semaphore(AT_ONCE)

    def wake(self) -> None:
        """Something is due."""
        self._due.set()

    async def run(self) -> None:
        """Look whenever something is due, until cancelled."""
        while True:
            await self._due.wait()
            self._due.clear()
            try:
                if await self.look() == LARGEST_ROUND:
                    self.wake()
            except DatabaseUnavailable as error:
                log.warning("outside work waits for the database", error=str(error))

    async def look(self) -> int:
        """One round; gives how many were looked at."""
        looks = await outside.due(self._database, self._catalog.served, LARGEST_ROUND, LEASE)
        await asyncio.gather(*(self._look_at(look) for look in looks))
        return len(looks)

    async def _look_at(self, look: Look) -> None:
        async with self._room:
            report, failed = await self._report(look)
            report = _judged(look, report)
            with suppress(DatabaseUnavailable):  # the next look comes by itself
                taken = await outside.record(
                    self._database,
                    look,
                    state=report.state,
                    progress=report.progress,
                    result=_result(report),
                    error=_error(report),
                    failed=failed,
                    stopping=look.stop is not None,
                )
                if taken and report.is_end:
                    self._on_end()

    async def _report(self, look: Look) -> tuple[Report, bool]:
        """What the outside says, and whether it failed to say anything."""
        try:
            async with asyncio.timeout(PATIENCE):
                if look.stop is not None and look.cancel is not None:
                    await self._cancel(look)
                if look.poll is None:
                    return _by_callback(look), False
                report = await self._call(look.poll, look)
            if not isinstance(report, Report):
                raise TypeError(f"{look.poll} gave {report!r:.80}; give a retoma.Report")
            _encoded(report)
        except Exception as error:  # noqa: BLE001  (whatever the provider's client met, the work goes on)
            log.warning("no word from outside", run=str(look.run), step=look.step, item=look.item, error=str(error))
            return Report(look.state), True
        return report, False

    async def _cancel(self, look: Look) -> None:
        try:
            await self._call(look.cancel or "", look)
        except Exception as error:  # noqa: BLE001  (it is told again at the next look)
            log.warning("could not be cancelled", run=str(look.run), step=look.step, item=look.item, error=str(error))

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


def _result(report: Report) -> str | None:
    return _encoded(report) if report.state == "succeeded" else None


def _encoded(report: Report) -> str:
    text = encode_any(report.result)
    if len(text) > LARGEST_RESULT:
        raise ValueError(f"its result is {len(text):,} bytes of JSON, over the limit of {LARGEST_RESULT:,}")
    return text


def _error(report: Report) -> str | None:
    if not report.is_end or report.state == "succeeded":
        return None
    message = report.message or f"it ended as {report.state}"
    return json.dumps({"code": clean(report.code or report.state.upper()), "message": clean(message)[:LONGEST_MESSAGE]})
