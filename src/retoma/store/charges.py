"""Charges of attempts, and prices of providers."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import date, datetime
from typing import Any
from uuid import UUID

from retoma.define.charge import Charge as ReportedCharge
from retoma.records import Charge, ChargeTotal, Price
from retoma.store.database import Database, is_duplicate
from retoma.store.statements import statements

_SQL = statements("charges")
MAX_ATTEMPTS = 5
_ATTEMPT_COLUMNS = ("id", "run", "step", "item", "revision", "attempt", "tenant")
_CHARGE_COLUMNS = ("provider", "resource", "tokens_in", "tokens_out", "micros")


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
    charge: ReportedCharge


async def write(database: Database, entries: Sequence[ChargeEntry]) -> None:
    await database.fetch(
        _SQL["write_charges"],
        **{name: [getattr(entry, name) for entry in entries] for name in _ATTEMPT_COLUMNS},
        **{name: [getattr(entry.charge, name) for entry in entries] for name in _CHARGE_COLUMNS},
        units=[float(entry.charge.units) for entry in entries],
    )


async def list_for_run(database: Database, run: UUID, after: UUID | None, limit: int) -> list[Charge]:
    return await database.fetch_records(Charge, _SQL["list_charges"], run=run, after=after, limit=limit)


async def sum_charges(database: Database, **wanted: Any) -> list[ChargeTotal]:
    """Return the sums grouped `by` these fields, highest first."""
    return await database.fetch_records(ChargeTotal, _SQL["sum_charges"], **wanted)


async def sum_by_day(database: Database, since: datetime, zone: str, tenants: Sequence[int] | None) -> dict[date, int]:
    """Return the costs of these tenants in micros, by day of the time zone. Days without charges are left out."""
    rows = await database.fetch(_SQL["sum_charges_by_day"], since=since, zone=zone, tenants=tenants)
    return {row["day"]: row["micros"] for row in rows}


async def get_job_cost(database: Database, run: UUID, step: str, item: str, revision: int) -> int | None:
    """Return what the attempts at a job have cost, in micros, without charges of unknown price.

    None if its external work has succeeded, so that the next attempt only reads the result.
    """
    micros: int | None = await database.fetch_value(
        _SQL["get_job_cost"], run=run, step=step, item=item, revision=revision
    )
    return micros


async def list_prices(database: Database, provider: str | None = None, resource: str | None = None) -> list[Price]:
    """Return every version, the newest of each first; of all resources, or of one."""
    return await database.fetch_records(Price, _SQL["list_prices"], provider=provider, resource=resource)


async def set_price(database: Database, provider: str, resource: str, **micros: int) -> Price:
    """Return the newest version: the previous one, if nothing changed."""
    for _ in range(MAX_ATTEMPTS):
        try:
            await database.fetch(_SQL["add_price"], provider=provider, resource=resource, **micros)
            break
        except Exception as error:
            if not is_duplicate(error):  # somebody else set it at the same moment; ours follows
                raise
    return (await list_prices(database, provider, resource))[0]
