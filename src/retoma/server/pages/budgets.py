"""The page of budgets: what is spent of each, a forecast, its history, and the forms of administrators."""

from __future__ import annotations

from datetime import date
from decimal import Decimal, InvalidOperation
from functools import partial
from typing import Any

from starlette.responses import Response

from retoma.errors import InvalidInput
from retoma.records import Budget, BudgetAction, BudgetPeriod, TenantMoney
from retoma.server.pages.budget_texts import PERIOD_NAMES, name_period, show_amount
from retoma.server.pages.charts import Chart, draw_bars
from retoma.server.pages.page import Page
from retoma.server.pages.page_context import PageContext
from retoma.translations import N_

MICROS_PER_DOLLAR = 1_000_000
PERIODS = {BudgetPeriod.DAY: 30, BudgetPeriod.MONTH: 12}
ACTION_NAMES = {
    BudgetAction.REVIEW: N_("ask a person"),
    BudgetAction.NOTIFY: N_("only notify"),
}


async def show_budgets(context: PageContext) -> Response:
    tenant = context.query.get("tenant") or None
    statuses = await context.client.budgets.list_statuses(tenant=tenant)
    money = {each.tenant: each for each in await context.client.budgets.list_money(tenant=tenant)}
    return context.render(
        "budgets.html",
        statuses=statuses,
        charts={each.budget.id: await _draw_history(context, each.budget, money) for each in statuses},
        money=money,
        tenants=list(money),
        tenant=tenant,
        show=lambda micros, name: show_amount(context, money.get(name), micros),
        name_period=lambda each: context.translate(PERIOD_NAMES[each.budget.period]),
        name_current=partial(_name_current, context, money),
        action_names={action: context.translate(name) for action, name in ACTION_NAMES.items()},
        period_names={period: context.translate(name) for period, name in PERIOD_NAMES.items()},
        now=await context.client.now(),
    )


async def set_budget(context: PageContext) -> Response:
    """Create or change a budget. From a review, return to it: it continues if the budget allows it now."""
    fields = context.fields
    await context.client.budgets.set(
        fields.get("tenant", ""),
        fields.get("period", ""),
        _read_micros(context, "limit"),
        pipeline=fields.get("pipeline", "").strip() or None,
        action=fields.get("action") or None,
        warn_at=float(_read_number(context, "warn_at")) / 100 if fields.get("warn_at") else None,
        by=context.by,
    )
    review = context.fields.get("review", "")
    return context.redirect("/reviews" if review else "/budgets", "budget_set")


async def remove_budget(context: PageContext) -> Response:
    fields = context.fields
    await context.client.budgets.remove(
        fields.get("tenant", ""), fields.get("period", ""), pipeline=fields.get("pipeline") or None
    )
    return context.redirect("/budgets", "budget_removed")


async def set_money(context: PageContext) -> Response:
    fields = context.fields
    currency = fields.get("currency", "").strip().upper() or None
    try:
        rate_date = date.fromisoformat(fields["rate_date"]) if fields.get("rate_date") else None
    except ValueError:
        raise InvalidInput(context.gettext("Enter the date of the rate as year-month-day.")) from None
    await context.client.budgets.set_money(
        fields.get("tenant", ""),
        time_zone=fields.get("time_zone", "").strip() or "UTC",
        currency=currency,
        rate=_read_number(context, "rate") if fields.get("rate") else None,
        rate_date=rate_date,
    )
    return context.redirect("/budgets", "money_set")


def _read_micros(context: PageContext, name: str) -> int:
    return round(_read_number(context, name) * MICROS_PER_DOLLAR)


def _read_number(context: PageContext, name: str) -> Decimal:
    """Return a number with a point or a comma before its decimals."""
    try:
        number = Decimal(context.fields.get(name, "").strip().replace(",", "."))
    except InvalidOperation:
        raise InvalidInput(context.gettext("Enter an amount such as 12.50.")) from None
    if not number.is_finite() or number.adjusted() > 12:
        raise InvalidInput(context.gettext("Enter an amount such as 12.50."))
    return number


def _name_current(context: PageContext, money: dict[str, TenantMoney], status: Any) -> str:
    budget: Budget = status.budget
    return name_period(context, budget.period, status.starts_at, _get_zone(money, budget.tenant))


def _get_zone(money: dict[str, TenantMoney], tenant: str) -> str:
    return money[tenant].time_zone if tenant in money else "UTC"


async def _draw_history(context: PageContext, budget: Budget, money: dict[str, TenantMoney]) -> Chart | None:
    """Draw what was spent in each of the last periods, the current one last."""
    if budget.period is BudgetPeriod.RUN:
        return None
    found = await context.client.budgets.list_history(
        budget.tenant, budget.period, pipeline=budget.pipeline, periods=PERIODS[budget.period]
    )
    zone = _get_zone(money, budget.tenant)
    totals = list(reversed(found))
    labels = [name_period(context, budget.period, each.starts_at, zone) for each in totals]

    def show(micros: float) -> str:
        return show_amount(context, money.get(budget.tenant), round(micros))

    return Chart(
        f"budget-{budget.id}",
        context.gettext("History"),
        context.gettext("What was spent in each period."),
        labels,
        show(max(each.spent for each in totals)),
        draw_bars(labels, [each.spent for each in totals], show),
        [],
    )


PAGES = (
    Page("/budgets", show_budgets, set_budget, submit_scope="budgets:write"),
    Page("/budgets/remove", submit=remove_budget, submit_scope="budgets:write"),
    Page("/budgets/money", submit=set_money, submit_scope="budgets:write"),
)
