"""The circuit breakers of providers in chains, as this worker knows them, and what it has to report about them."""

from __future__ import annotations

import asyncio
import time
from collections import deque
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from datetime import datetime, timedelta
from math import inf

from retoma.engine import outcomes
from retoma.engine.outcomes import Outcome
from retoma.errors import DatabaseUnavailable
from retoma.logs import get_logger
from retoma.store import provider_breakers
from retoma.store.database import Database
from retoma.store.provider_breakers import BreakerRow, ProviderReport
from retoma.worker.chain_provider import ChainProvider

log = get_logger(__name__)
MAX_AGE = 1.0  # seconds for which the states that were read are used
PROBE_WAIT = timedelta(seconds=15)  # until a job checks again whether the probe of another one has succeeded
MIN_WAIT = timedelta(seconds=1)
_CLOSED = BreakerRow("", False, False, False, timedelta(0), timedelta(0))


@dataclass(frozen=True, slots=True)
class Permit:
    """Permission to use a provider now. `probed_at` is set if the job probes it, `is_troubled` if it failed lately."""

    name: str
    is_troubled: bool
    probed_at: datetime | None = None


@dataclass(frozen=True, slots=True)
class Wait:
    """No provider may be used for this long."""

    delay: timedelta


class ProviderBreakers:
    """Reads the breakers of the providers `names` when an attempt needs one, at most once in `max_age` seconds.

    Reports are written before the outcomes of their attempts, so a job that moves on finds the breaker open.
    """

    def __init__(self, database: Database, names: Iterable[str], max_age: float = MAX_AGE) -> None:
        self._database = database
        self._names = list(names)
        self._max_age = max_age
        self._states: dict[str, BreakerRow] = {}
        self._read_at = -inf  # when the last read began
        self._is_outdated = False  # by what this worker has written since
        self._reading = asyncio.Lock()
        self._reports: deque[ProviderReport] = deque()
        self._writing = asyncio.Lock()

    async def declare(self, names: Iterable[str]) -> None:
        """Create the breakers of providers that no worker has declared when it started, such as those of a tenant."""
        new = sorted(set(names) - set(self._names))
        if new:
            await provider_breakers.declare_provider_pools(self._database, new)
            self._names += new
            self._is_outdated = True

    async def acquire(self, names: Sequence[str], *, fresh: bool) -> Permit | Wait:
        """Return permission for the first of these providers whose breaker allows it. A paused provider is waited for.

        With `fresh` the breakers are read now: an earlier attempt of the job may have opened one.
        """
        await self._read_states(0 if fresh else self._max_age)
        permit = await self._acquire_known(names)
        if isinstance(permit, Wait) and not fresh:
            await self._read_states(0)
            permit = await self._acquire_known(names)
        return permit

    def add_report(self, provider: ChainProvider, outcome: Outcome) -> None:
        """Keep what an attempt has learnt about its provider until `flush`. A success matters only after failures."""
        state = self._states.get(provider.breaker, _CLOSED)
        if isinstance(outcome, outcomes.Success | outcomes.Parked) and (provider.is_troubled or state.is_troubled):
            provider.set_report("succeeded")
        if provider.report is not None:
            self._reports.append(provider.report)
            self._states[provider.breaker] = replace(state, is_troubled=provider.report.kind != "succeeded")

    @property
    def has_reports(self) -> bool:
        return bool(self._reports) or self._writing.locked()

    async def flush(self) -> None:
        """Write the reports that were added before. If the database is unreachable, keep them for the next call."""
        async with self._writing:
            reports = list(self._reports)
            if not reports:
                return
            try:
                await provider_breakers.record_reports(self._database, reports)
            except DatabaseUnavailable as error:
                log.warning(
                    "provider_reports_delayed",
                    message="could not record reports about providers: the database is unreachable; retrying",
                    error=error,
                )
                return
            except Exception:
                # Reports that cannot be written must not keep the outcomes of their jobs from being recorded.
                log.exception(
                    "provider_reports_lost",
                    message="could not record reports about providers",
                    providers=sorted({report.name for report in reports}),
                )
            for _ in reports:
                self._reports.popleft()
            self._is_outdated = True

    async def _acquire_known(self, names: Sequence[str]) -> Permit | Wait:
        waits = []
        for name in names:
            state = self._states.get(name, _CLOSED)
            wait = self._get_wait(state)
            if wait is None and not state.is_tripped:
                return Permit(name, state.is_troubled)
            if wait is None and (probed_at := await provider_breakers.claim_probe(self._database, name)) is not None:
                self._is_outdated = True
                return Permit(name, is_troubled=True, probed_at=probed_at)
            waits.append(wait or MIN_WAIT)
            if not state.is_tripped:  # it limits our rate, and is waited for
                break
        return Wait(max(min(waits), MIN_WAIT))

    def _get_wait(self, state: BreakerRow) -> timedelta | None:
        """Return how long to wait for a provider, or None if it may be used or probed now."""
        age = timedelta(seconds=time.monotonic() - self._read_at)
        if state.is_tripped and state.open_for > age:
            return min(state.open_for, PROBE_WAIT) if state.is_probed else state.open_for
        return state.paused_for if state.paused_for > age else None

    async def _read_states(self, max_age: float) -> None:
        oldest = time.monotonic() - max_age
        async with self._reading:
            if self._read_at >= oldest and not self._is_outdated:
                return
            began, self._is_outdated = time.monotonic(), False
            rows = await provider_breakers.list_breakers(self._database, self._names)
            self._states, self._read_at = {row.name: row for row in rows}, began
