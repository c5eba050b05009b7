"""What a person reads when a job waits because it would pass a hard budget."""

from __future__ import annotations

from zoneinfo import ZoneInfo

from retoma.engine.outcomes import ReviewReason
from retoma.records import BudgetPeriod, PassedBudget
from retoma.records.budget import BUDGET_PASSED


def describe_passed_budget(passed: PassedBudget) -> ReviewReason:
    """Return why the job opens a review: a sentence for logs and programs, and the facts for pages."""
    return ReviewReason(BUDGET_PASSED, _write_sentence(passed), budget=passed.to_json())


def _write_sentence(passed: PassedBudget) -> str:
    scope = f"{passed.tenant!r}" if passed.pipeline is None else f"{passed.pipeline!r} of {passed.tenant!r}"
    reserved = f", {_format(passed.reserved)} reserved by running attempts" if passed.reserved else ""
    used = (
        f"the budget of {scope} for {_name_period(passed)} is {_format(passed.limit)}: {_format(passed.spent)} spent"
        f"{reserved}"
    )
    if passed.estimate is None:
        return f"{used}, so it is used up"
    return f"{used}, and this step is estimated at {_format(passed.estimate)}"


def _name_period(passed: PassedBudget) -> str:
    starts_at = passed.starts_at.astimezone(ZoneInfo(passed.time_zone))
    match passed.period:
        case BudgetPeriod.RUN:
            return "this run"
        case BudgetPeriod.DAY:
            return f"{starts_at:%Y-%m-%d}"
        case BudgetPeriod.MONTH:
            return f"{starts_at:%Y-%m}"


def _format(micros: int) -> str:
    return f"US$ {micros / 1_000_000:.2f}"
