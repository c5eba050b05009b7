"""`client.budgets`: what runs and tenants may spend, and what they have spent of it."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import date
from decimal import Decimal
from typing import Any
from uuid import UUID

from retoma.client.core import Namespace
from retoma.client.validation import check_name, check_start_options, check_time_zone
from retoma.errors import InvalidInput, NotFound
from retoma.records import (
    AuditAction,
    Budget,
    BudgetAction,
    BudgetPeriod,
    BudgetPeriodTotal,
    BudgetStatus,
    TenantMoney,
)
from retoma.store import budgets

MAX_BUDGET = 10**15  # a thousand million US dollars
MAX_PERIODS = 400
MAX_RATE = Decimal(10**9)
DEFAULT_WARN_AT = 0.8


class Budgets(Namespace):
    """A budget is named by its tenant, its period and, if it is about one pipeline only, that pipeline.

    Amounts are in micros, millionths of a US dollar.
    """

    async def list(self, *, tenant: str | None = None) -> Sequence[Budget]:
        """Return all budgets, by tenant and pipeline."""
        return [status.budget for status in await self.list_statuses(tenant=tenant)]

    async def get(self, tenant: str, period: BudgetPeriod | str, *, pipeline: str | None = None) -> Budget:
        """Return one budget. Raise NotFound if there is none."""
        return (await self.get_status(tenant, period, pipeline=pipeline)).budget

    async def set(
        self,
        tenant: str,
        period: BudgetPeriod | str,
        micros: int,
        *,
        pipeline: str | None = None,
        action: BudgetAction | str | None = None,
        warn_at: float | None = None,
        by: str | None = None,
    ) -> Budget:
        """Create a budget, or change it. Jobs that wait because of it continue if they no longer pass it.

        A new budget has the action `review`, and warns at 80 % of it. An existing one keeps what is not given.
        """
        check_start_options(tenant=tenant, key=None, priority=0, run_at=None)
        chosen, author = _parse_period(period), self._get_author(by)
        check_name("name", author)
        if pipeline is not None:
            check_name("pipeline", pipeline)
        owner = await self._core.get_or_create_tenant(tenant)
        before = await self._find(owner, chosen, pipeline)
        after = {
            "micros": _check_micros(micros),
            "action": _parse_action(action) if action else before.action if before else BudgetAction.REVIEW,
            "warn_at": _check_share(before.warn_at if before else DEFAULT_WARN_AT)
            if warn_at is None
            else _check_share(warn_at),
        }
        recording = self._recording(
            "set_budget",
            AuditAction.BUDGET_SET,
            _name_budget(tenant, chosen, pipeline),
            tenant=owner,
            before=None if before is None else {name: getattr(before, name) for name in after},
            after=after,
        )
        await budgets.set_budget(recording, owner, pipeline, chosen, **after, by=author)
        return await self.get(tenant, chosen, pipeline=pipeline)

    async def remove(self, tenant: str, period: BudgetPeriod | str, *, pipeline: str | None = None) -> None:
        """Remove a budget. Jobs that wait because of it continue."""
        self._core.check_tenant(tenant)
        budget = await self.get(tenant, period, pipeline=pipeline)
        recording = self._recording(
            "remove_budget",
            AuditAction.BUDGET_REMOVE,
            _name_budget(tenant, budget.period, pipeline),
            tenant=await self._core.find_tenant_id(tenant),
            before={"micros": budget.micros, "action": budget.action, "warn_at": budget.warn_at},
        )
        if not await budgets.remove(recording, budget.id):
            raise _build_not_found(tenant, budget.period, pipeline)

    async def get_status(
        self, tenant: str, period: BudgetPeriod | str, *, pipeline: str | None = None, run: UUID | None = None
    ) -> BudgetStatus:
        """Return what is used of a budget now. One per run needs a `run`. Raise NotFound if there is no such budget."""
        chosen = _parse_period(period)
        for status in await self.list_statuses(tenant=tenant, run=run):
            if (status.budget.period, status.budget.pipeline) == (chosen, pipeline):
                return status
        raise _build_not_found(tenant, chosen, pipeline)

    async def list_statuses(self, *, tenant: str | None = None, run: UUID | None = None) -> Sequence[BudgetStatus]:
        """Return budgets with what is used of them now. With a run, those that limit it."""
        if run is not None:
            await self._core.check_run(run)
        return await budgets.list_statuses(self._database, await self._core.find_tenants(tenant), run=run)

    async def list_history(
        self, tenant: str, period: BudgetPeriod | str, *, pipeline: str | None = None, periods: int = 12
    ) -> Sequence[BudgetPeriodTotal]:
        """Return what was spent in the current period and those before it, the current one first. A run has none.

        Periods that began more than 400 days ago are not known any more.
        """
        if not 1 <= periods <= MAX_PERIODS:
            raise InvalidInput(f"ask for 1 to {MAX_PERIODS} periods, not {periods!r:.40}")
        budget = await self.get(tenant, period, pipeline=pipeline)
        return await budgets.list_history(self._database, budget.id, periods)

    async def list_money(self, *, tenant: str | None = None) -> Sequence[TenantMoney]:
        """Return the time zone and the currency of tenants, by name."""
        return await budgets.list_money(self._database, await self._core.find_tenants(tenant))

    async def get_money(self, tenant: str) -> TenantMoney:
        """Return the time zone and the currency of a tenant. Raise NotFound if there is no such tenant."""
        for money in await self.list_money(tenant=tenant):
            return money
        raise NotFound(f"there is no tenant {tenant!r:.80}")

    async def set_money(
        self,
        tenant: str,
        *,
        time_zone: str = "UTC",
        currency: str | None = None,
        rate: Decimal | float | None = None,
        rate_date: date | None = None,
    ) -> TenantMoney:
        """Set the time zone in which the tenant's days and months begin, and the currency to show amounts in.

        `rate` is how many units of the currency a US dollar costs, on `rate_date`. Limits and charges stay in US
        dollars.
        """
        check_start_options(tenant=tenant, key=None, priority=0, run_at=None)
        check_time_zone(time_zone)
        exact = _check_currency(currency, rate, rate_date)
        owner = await self._core.get_or_create_tenant(tenant)
        before = await self.get_money(tenant)
        after: dict[str, Any] = {
            "time_zone": time_zone,
            "currency": currency,
            "rate": exact,
            "rate_date": rate_date,
        }
        recording = self._recording(
            "set_tenant_money",
            AuditAction.TENANT_SET_MONEY,
            tenant,
            before={name: getattr(before, name) for name in after},
            after=after,
        )
        await budgets.set_money(recording, owner, **after)
        return await self.get_money(tenant)

    async def _find(self, owner: int, period: BudgetPeriod, pipeline: str | None) -> Budget | None:
        found = await budgets.list_statuses(self._database, [owner])
        return next(
            (each.budget for each in found if (each.budget.period, each.budget.pipeline) == (period, pipeline)), None
        )


def _parse_period(period: str) -> BudgetPeriod:
    if period not in list(BudgetPeriod):
        raise InvalidInput(f"a budget is per {', '.join(BudgetPeriod)}, not {period!r:.40}")
    return BudgetPeriod(period)


def _parse_action(action: str) -> BudgetAction:
    if action not in list(BudgetAction):
        raise InvalidInput(f"the action of a budget is {' or '.join(BudgetAction)}, not {action!r:.40}")
    return BudgetAction(action)


def _check_micros(micros: int) -> int:
    if isinstance(micros, bool) or not isinstance(micros, int) or not 0 <= micros <= MAX_BUDGET:
        raise InvalidInput(f"a budget is from 0 to {MAX_BUDGET:,} micro-dollars, not {micros!r:.40}")
    return micros


def _check_share(share: float) -> float:
    if not 0 < share <= 1:
        raise InvalidInput(f"warn_at is a share above 0 and up to 1, such as 0.8, not {share!r:.40}")
    return share


def _check_currency(currency: str | None, rate: Decimal | float | None, rate_date: date | None) -> Decimal | None:
    given = [value is not None for value in (currency, rate, rate_date)]
    if not any(given):
        return None
    if not all(given):
        raise InvalidInput("a currency needs a rate and the date of that rate, or none of them")
    if not (isinstance(currency, str) and len(currency) == 3 and currency.isascii() and currency.isupper()):
        raise InvalidInput(f"a currency is a code of three capital letters, such as BRL, not {currency!r:.40}")
    exact = Decimal(str(rate))
    if not exact.is_finite() or not 0 < exact <= MAX_RATE:
        raise InvalidInput(f"a rate is above 0 and up to {MAX_RATE:,}, not {rate!r:.40}")
    return exact


def _name_budget(tenant: str, period: BudgetPeriod, pipeline: str | None) -> str:
    return "/".join((tenant, *([] if pipeline is None else [pipeline]), period))


def _build_not_found(tenant: str, period: BudgetPeriod, pipeline: str | None) -> NotFound:
    return NotFound(f"there is no budget {_name_budget(tenant, period, pipeline)!r:.200}")
