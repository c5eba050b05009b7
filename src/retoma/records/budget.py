"""Budgets: what runs and tenants may spend. Amounts are in micros, millionths of a US dollar."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from datetime import date, datetime
from decimal import Decimal
from enum import StrEnum
from typing import Annotated, Any, Self

from pydantic import Field

BUDGET_PASSED = "BUDGET"
"""The code of a review that a job opens instead of passing a hard budget."""


class BudgetPeriod(StrEnum):
    RUN = "run"
    DAY = "day"
    MONTH = "month"


class BudgetAction(StrEnum):
    """What happens when a budget is used up: people are notified, or also asked before it is passed."""

    NOTIFY = "notify"
    REVIEW = "review"


@dataclass(frozen=True)
class Budget:
    """The most that one run, or all runs of a day or a month, may cost."""

    id: int
    tenant: str
    pipeline: Annotated[str | None, Field(description="Null if it applies to all pipelines of the tenant together.")]
    period: BudgetPeriod
    micros: Annotated[int, Field(description="The limit, in millionths of a US dollar.")]
    action: BudgetAction
    warn_at: Annotated[float, Field(description="The share of the limit from which people are warned.")]
    changed_at: datetime
    changed_by: str


@dataclass(frozen=True)
class BudgetStatus:
    """How much of a budget is used up in the current period, or by one run.

    `spent` and `reserved` are null for a budget per run without a run.
    """

    budget: Budget
    starts_at: datetime | None
    ends_at: datetime | None
    spent: Annotated[int | None, Field(description="What was charged, in millionths of a US dollar.")]
    reserved: Annotated[int | None, Field(description="What running attempts are estimated to cost beyond that.")]
    waiting: Annotated[int, Field(description="Jobs that wait for a person because they would pass it.")]
    now: datetime

    @property
    def share(self) -> float | None:
        """Return what is spent as a share of the limit; None if that is unknown or the limit is zero."""
        return None if self.spent is None or self.budget.micros == 0 else self.spent / self.budget.micros

    @property
    def forecast(self) -> int | None:
        """Return what is spent at the end of the period if spending continues at its mean rate so far."""
        if self.spent is None or self.starts_at is None or self.ends_at is None or self.now <= self.starts_at:
            return None
        return round(self.spent * ((self.ends_at - self.starts_at) / (self.now - self.starts_at)))


@dataclass(frozen=True)
class BudgetPeriodTotal:
    """What was spent in one earlier period of a budget, or the current one."""

    starts_at: datetime
    spent: int


@dataclass(frozen=True)
class PassedBudget:
    """A hard budget that an attempt would pass, as the database found it before the attempt.

    Without an `estimate`, the attempt waits because the budget is used up.
    """

    id: int
    tenant: str
    pipeline: str | None
    period: BudgetPeriod
    starts_at: datetime
    time_zone: str
    limit: int
    spent: int
    reserved: int
    estimate: int | None

    @classmethod
    def from_json(cls, facts: Mapping[str, Any]) -> Self:
        """Return what the reason of a review says."""
        starts_at = datetime.fromisoformat(facts["starts_at"])
        return cls(**{**facts, "period": BudgetPeriod(facts["period"]), "starts_at": starts_at})

    def to_json(self) -> dict[str, Any]:
        return {**vars(self), "starts_at": self.starts_at.isoformat()}


@dataclass(frozen=True)
class TenantMoney:
    """The time zone of a tenant's days and months, and the currency in which amounts are also shown.

    `rate` is how many units of the currency a US dollar costs, as somebody entered it, with the date of that rate.
    """

    tenant: str
    time_zone: str
    currency: str | None
    rate: Decimal | None
    rate_date: date | None
