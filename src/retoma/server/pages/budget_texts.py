"""Budgets as people read them: amounts in US dollars and in the tenant's currency, and the names of periods."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import datetime
from zoneinfo import ZoneInfo

from babel.dates import format_date
from babel.numbers import format_currency

from retoma.records import Budget, BudgetPeriod, PassedBudget, TenantMoney
from retoma.server.pages.page_context import PageContext
from retoma.translations import LOCALES, N_

PERIOD_NAMES = {
    BudgetPeriod.RUN: N_("per run"),
    BudgetPeriod.DAY: N_("per day"),
    BudgetPeriod.MONTH: N_("per month"),
}


def show_amount(context: PageContext, money: TenantMoney | None, micros: int) -> str:
    """Return US dollars, followed by the amount in the tenant's currency if it has one."""
    dollars = f"US$ {context.formats.money(micros)}"
    if money is None or money.currency is None or money.rate is None or money.currency == "USD":
        return dollars
    own = format_currency(micros * money.rate / 1_000_000, money.currency, locale=LOCALES[context.language])
    return f"{dollars} ({own})"


def name_scope(budget: Budget | PassedBudget) -> str:
    return budget.tenant if budget.pipeline is None else f"{budget.tenant} · {budget.pipeline}"


def name_period(context: PageContext, period: BudgetPeriod, starts_at: datetime | None, time_zone: str) -> str:
    """Return the month or the day that began then in the tenant's time zone."""
    if period is BudgetPeriod.RUN or starts_at is None:
        return context.gettext("this run")
    day = starts_at.astimezone(ZoneInfo(time_zone)).date()
    if period is BudgetPeriod.DAY:
        return context.formats.day(day)
    return format_date(day, "MMMM yyyy", locale=LOCALES[context.language])


def describe_passed_budget(context: PageContext, passed: PassedBudget, money: TenantMoney) -> str:
    """Return why a job waits, as a sentence."""

    def show(micros: int) -> str:
        return show_amount(context, money, micros)

    values = {
        "budget": name_scope(passed),
        "period": name_period(context, passed.period, passed.starts_at, passed.time_zone),
        "spent": show(passed.spent),
        "limit": show(passed.limit),
        "reserved": show(passed.reserved),
    }
    if passed.estimate is None:
        return _describe_used_up_budget(context, passed, values)
    values["estimate"] = show(passed.estimate)
    if not passed.reserved:
        return context.gettext(
            "Budget of %(budget)s for %(period)s: %(spent)s of %(limit)s spent, this step is estimated at "
            "%(estimate)s.",
            **values,
        )
    return context.gettext(
        "Budget of %(budget)s for %(period)s: %(spent)s of %(limit)s spent, %(reserved)s reserved by running steps, "
        "this step is estimated at %(estimate)s.",
        **values,
    )


def _describe_used_up_budget(context: PageContext, passed: PassedBudget, values: Mapping[str, str]) -> str:
    if not passed.reserved:
        return context.gettext(
            "Budget of %(budget)s for %(period)s is used up: %(spent)s of %(limit)s spent.",
            **values,
        )
    return context.gettext(
        "Budget of %(budget)s for %(period)s is used up: %(spent)s of %(limit)s spent, %(reserved)s reserved by "
        "running steps.",
        **values,
    )
