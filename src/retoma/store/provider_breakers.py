"""The circuit breakers of providers in chains, which are those of the pools with their names."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Literal, NamedTuple
from uuid import UUID

from retoma.define.pool import MAX_CAPACITY
from retoma.store.database import Database
from retoma.store.statements import statements

_SQL = statements("provider_breakers")
ReportKind = Literal["down", "rejected", "rate_limited", "succeeded"]


@dataclass(frozen=True)
class BreakerRow:
    """The state of a breaker. No job may use the provider for `open_for`, nor for `paused_for`; then, if it is tripped,
    one job probes it."""

    name: str
    is_troubled: bool
    is_tripped: bool
    is_probed: bool
    open_for: timedelta
    paused_for: timedelta


class ProviderReport(NamedTuple):
    """What an attempt has learnt about its provider. `probed_at` is set if the attempt probed it."""

    name: str
    kind: ReportKind
    delay: timedelta | None = None
    probed_at: datetime | None = None


class ProviderEffect(NamedTuple):
    """An effect of a job. `provider` is known of external work; otherwise `find` may be a function of a provider.

    The outcome of the call is unknown, or the external work that it submitted has failed, or neither.
    """

    provider: str | None
    find: str | None
    is_unknown: bool
    has_failed: bool


async def declare_provider_pools(database: Database, names: Sequence[str]) -> None:
    """Create the pools of these providers that do not exist. Jobs of a chain take no slots."""
    if names:
        await database.fetch(_SQL["declare_provider_pools"], names=names, capacity=MAX_CAPACITY)


async def list_breakers(database: Database, names: Sequence[str]) -> list[BreakerRow]:
    return await database.fetch_records(BreakerRow, _SQL["list_breakers"], names=names)


async def claim_probe(database: Database, name: str) -> datetime | None:
    """Return when the caller's probe of the provider starts, or None if it must not probe it now.

    If the answer is lost, nobody probes the provider until the probe times out.
    """
    probed_at: datetime | None = await database.fetch_value(_SQL["claim_probe"], name=name)
    return probed_at


async def record_reports(database: Database, reports: Sequence[ProviderReport]) -> None:
    """Record the reports in this order. A failure whose record is repeated after a lost answer counts twice."""
    columns = zip(*reports, strict=True)
    names, kinds, delays, probes = (list(column) for column in columns)
    await database.fetch(_SQL["record_reports"], name=names, kind=kinds, delay=delays, probed_at=probes)


async def list_provider_effects(
    database: Database, run: UUID, step: str, item: str, revision: int
) -> list[ProviderEffect]:
    rows = await database.fetch(_SQL["list_provider_effects"], run=run, step=step, item=item, revision=revision)
    return [ProviderEffect(**row) for row in rows]
