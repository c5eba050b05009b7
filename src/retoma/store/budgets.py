"""Budgets, what is spent and reserved of them, and the currency and time zone of tenants."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import fields
from datetime import date
from decimal import Decimal
from typing import Any
from uuid import UUID

from retoma.identifiers import ClaimKey
from retoma.metrics import BudgetMetrics
from retoma.records import (
    Budget,
    BudgetAction,
    BudgetPeriod,
    BudgetPeriodTotal,
    BudgetStatus,
    PassedBudget,
    TenantMoney,
)
from retoma.store.database import Database, Row
from retoma.store.rows import parse_json
from retoma.store.statements import statements

_SQL = statements("budgets")
_COLUMNS = tuple(field.name for field in fields(Budget))


async def reserve(database: Database, claim: ClaimKey, micros: int | None) -> PassedBudget | None:
    """Reserve the estimated cost of an attempt until it ends. If a hard budget would be passed, return that instead.

    Without an estimate nothing is reserved, and a hard budget that is used up is returned.
    """
    job = dict(zip(("run", "step", "item", "revision", "fence"), claim, strict=True))
    passed = await database.fetch_value(_SQL["reserve_budget"], **job, micros=micros)
    return None if passed is None else PassedBudget.from_json(parse_json(passed))


async def list_statuses(
    database: Database, tenants: Sequence[int] | None, *, run: UUID | None = None
) -> list[BudgetStatus]:
    """Return budgets with what is used of them now. With a run, only those that limit it."""
    rows = await database.fetch(_SQL["list_budgets"], tenants=tenants, run=run)
    return [_make_status(row) for row in rows]


async def list_metrics(database: Database) -> list[BudgetMetrics]:
    return [
        BudgetMetrics(
            each.budget.tenant,
            each.budget.pipeline or "",
            each.budget.period,
            each.budget.micros,
            each.spent,
            each.waiting,
        )
        for each in await list_statuses(database, None)
    ]


async def set_budget(database: Database, tenant: int, pipeline: str | None, period: BudgetPeriod, **values: Any) -> int:
    """Create or change a budget, and return its id. Jobs that wait because of it are checked again."""
    number: int = await database.fetch_value(
        _SQL["set_budget"], tenant=tenant, pipeline=pipeline, period=period, **values
    )
    return number


async def remove(database: Database, budget: int) -> bool:
    """Remove a budget. Jobs that wait because of it are checked again."""
    return bool(await database.fetch(_SQL["remove_budget"], budget=budget))


async def list_history(database: Database, budget: int, periods: int) -> list[BudgetPeriodTotal]:
    """Return what was spent in the current period and those before it, the current one first."""
    return await database.fetch_records(BudgetPeriodTotal, _SQL["list_budget_history"], budget=budget, periods=periods)


async def list_money(database: Database, tenants: Sequence[int] | None) -> list[TenantMoney]:
    return await database.fetch_records(TenantMoney, _SQL["list_tenant_money"], tenants=tenants)


async def set_money(
    database: Database,
    tenant: int,
    *,
    time_zone: str,
    currency: str | None,
    rate: Decimal | None,
    rate_date: date | None,
) -> None:
    """Set them all. The days and months of the tenant's budgets change with the time zone."""
    await database.fetch(
        _SQL["set_tenant_money"], tenant=tenant, time_zone=time_zone, currency=currency, rate=rate, rate_date=rate_date
    )


def _make_status(row: Row) -> BudgetStatus:
    values = {name: row[name] for name in _COLUMNS}
    budget = Budget(**{**values, "period": BudgetPeriod(row["period"]), "action": BudgetAction(row["action"])})
    rest = {name: value for name, value in row.items() if name not in _COLUMNS}
    return BudgetStatus(budget, **rest)
