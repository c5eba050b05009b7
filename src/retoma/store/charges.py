"""Charges of attempts, and prices of providers."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Any
from uuid import UUID

from retoma.define.charge import Charge
from retoma.records import ChargeRecord, ChargeTotal, Price
from retoma.store.database import Database, is_duplicate
from retoma.store.statements import statements

_SQL = statements("charges")
MAX_ATTEMPTS = 5


@dataclass(frozen=True, slots=True)
class ChargeEntry:
    """One charge of one attempt. Its id makes writing it idempotent."""

    id: UUID
    run: UUID
    step: str
    item: str
    revision: int
    attempt: int
    tenant: int
    charge: Charge


async def write(database: Database, entries: Sequence[ChargeEntry]) -> None:
    await database.fetch(
        _SQL["write_charges"],
        id=[entry.id for entry in entries],
        run=[entry.run for entry in entries],
        step=[entry.step for entry in entries],
        item=[entry.item for entry in entries],
        revision=[entry.revision for entry in entries],
        attempt=[entry.attempt for entry in entries],
        tenant=[entry.tenant for entry in entries],
        provider=[entry.charge.provider for entry in entries],
        what=[entry.charge.what for entry in entries],
        tokens_in=[entry.charge.tokens_in for entry in entries],
        tokens_out=[entry.charge.tokens_out for entry in entries],
        units=[float(entry.charge.units) for entry in entries],
        micros=[entry.charge.micros for entry in entries],
    )


async def list_for_run(database: Database, run: UUID, after: UUID | None, limit: int) -> list[ChargeRecord]:
    rows = await database.fetch(_SQL["list_charges"], run=run, after=after, limit=limit)
    return [ChargeRecord(**row) for row in rows]


async def sum_charges(
    database: Database,
    *,
    by: Sequence[str],
    run: UUID | None,
    tenant: int | None,
    since: datetime | None,
    until: datetime | None,
    limit: int,
) -> list[ChargeTotal]:
    """Return the sums, highest first."""
    rows = await database.fetch(
        _SQL["sum_charges"], by=list(by), run=run, tenant=tenant, since=since, until=until, limit=limit
    )
    return [ChargeTotal(**row) for row in rows]


async def list_prices(database: Database) -> list[Price]:
    return [Price(**row) for row in await database.fetch(_SQL["list_prices"])]


async def set_price(database: Database, provider: str, what: str, **micros: int) -> Price:
    """Return the newest version: the previous one, if nothing changed."""
    values: dict[str, Any] = {"provider": provider, "what": what}
    for _ in range(MAX_ATTEMPTS):
        try:
            await database.fetch(_SQL["add_price"], **values, **micros)
            break
        except Exception as error:
            if not is_duplicate(error):  # somebody else set it at the same moment; ours follows
                raise
    return Price(**await database.fetch_one(_SQL["get_newest_price"], **values))
