"""The options of the decorators, and the policy that they form."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import fields, replace
from datetime import timedelta
from decimal import Decimal
from typing import Any, Literal, TypedDict, get_args

from retoma.define.definition_errors import Location, check_name, quote_names, suggest_name
from retoma.define.durations import Duration, as_timedelta
from retoma.define.isolation import Isolation, parse_isolation
from retoma.define.pool import Pool
from retoma.define.retry import Retry
from retoma.define.step import EstimatedCost, OnFailure, Policy, ProceedWhen

MAX_PRIORITY = 10_000
MAX_COST_LIMIT = 1_000_000_000
COMMON_MISSPELLINGS = {"retries": "retry"}  # by spelling it is closer to `retired`
StepReference = Callable[..., Any] | str
"""A step: its function or its name."""


class EachOptions(TypedDict, total=False):
    queue: str
    priority: int
    retry: Retry
    timeout: Duration
    total_timeout: Duration | None
    work_limit: Duration | None
    cost_limit: float | None
    estimated_cost: EstimatedCost
    after: StepReference | Sequence[StepReference]
    when: Callable[..., bool]
    on_failure: OnFailure
    isolation: Literal["process"] | Isolation | None
    pool: Pool | None
    slots: int
    publishes: bool
    retired: bool
    feedback: Callable[..., None]
    continues: StepReference


class StepOptions(EachOptions, total=False):
    proceed_when: ProceedWhen


def check_options(options: Mapping[str, Any], known: type, location: Location) -> None:
    for name in options:
        if name not in known.__annotations__:
            meant = [COMMON_MISSPELLINGS[name]] if name in COMMON_MISSPELLINGS else known.__annotations__
            raise location.error(f"there is no option {name!r}; {suggest_name(name, meant)}")
    if "proceed_when" in options and not callable(options["proceed_when"]):
        raise location.error(
            f"proceed_when= is {options['proceed_when']!r}; pass all_finished(...) or a function of the counts"
        )


def build_policy(options: Mapping[str, Any], defaults: Policy, location: Location) -> Policy:
    chosen = {field.name: options[field.name] for field in fields(Policy) if field.name in options}
    policy = replace(defaults, **chosen)
    _check(policy, location)
    timeout = parse_duration("timeout", policy.timeout, location)
    total = parse_optional_duration("total_timeout", policy.total_timeout, location)
    work_limit = parse_optional_duration("work_limit", policy.work_limit, location)
    if total is not None and work_limit is not None:
        raise location.error(
            "total_timeout= includes the waits between attempts and work_limit= does not: set only one of them"
        )
    isolation = parse_isolation(policy.isolation, location)
    return replace(policy, timeout=timeout, total_timeout=total, work_limit=work_limit, isolation=isolation)


def _check(policy: Policy, location: Location) -> None:
    check_name("queue", policy.queue, location)
    if not isinstance(policy.priority, int) or abs(policy.priority) > MAX_PRIORITY:
        raise location.error(
            f"priority= is {policy.priority!r}; pass an int from -{MAX_PRIORITY} to {MAX_PRIORITY}, higher runs first"
        )
    if not isinstance(policy.retry, Retry):
        raise location.error(f"retry= is {policy.retry!r}; pass a Retry, such as Retry(3), or Retry(0) for none")
    _check_slots(policy, location)
    _check_cost_limit(policy.cost_limit, location)
    if policy.on_failure not in get_args(OnFailure):
        raise location.error(f"on_failure= is {policy.on_failure!r}; pass one of {quote_names(get_args(OnFailure))}")


def _check_slots(policy: Policy, location: Location) -> None:
    if policy.pool is None:
        if policy.slots != 1:
            raise location.error("slots= needs pool=: they are slots of that pool")
        return
    if not isinstance(policy.pool, Pool):
        raise location.error(f"pool= is {policy.pool!r}; pass a Pool, such as Pool('gpu', capacity=3)")
    if not isinstance(policy.slots, int) or policy.slots < 1:
        raise location.error(f"slots= is {policy.slots!r}; pass a whole number above zero")
    if policy.slots > policy.pool.capacity > 0:
        raise location.error(
            f"it needs {policy.slots} slots, but pool {policy.pool.name!r} has {policy.pool.capacity}: it can never run"
        )
    if policy.slots > (policy.pool.per_tenant or policy.slots):
        raise location.error(
            f"it needs {policy.slots} slots, but pool {policy.pool.name!r} allows {policy.pool.per_tenant} per tenant: "
            "it can never run"
        )


def _check_cost_limit(limit: object, location: Location) -> None:
    is_number = isinstance(limit, int | float) and not isinstance(limit, bool)
    if limit is not None and not (is_number and 0 < limit < MAX_COST_LIMIT):  # type: ignore[operator]
        raise location.error(f"cost_limit= is {limit!r}; pass US dollars as a number above zero, such as 2.50")


def check_estimated_cost(estimate: Any, location: Location) -> EstimatedCost:
    """Return the estimate, or raise DefinitionError. What a function returns is checked before each attempt."""
    is_number = isinstance(estimate, int | float | Decimal) and not isinstance(estimate, bool)
    if estimate is not None and not callable(estimate) and not (is_number and 0 <= estimate < MAX_COST_LIMIT):
        raise location.error(
            f"estimated_cost= is {estimate!r}; pass US dollars as a number, such as 0.25, or a function of the step's "
            "data parameters that returns one"
        )
    return estimate  # type: ignore[no-any-return]


def parse_duration(name: str, duration: object, location: Location) -> timedelta:
    if not isinstance(duration, timedelta | int | float) or as_timedelta(duration) <= timedelta(0):
        raise location.error(f"{name}= is {duration!r}; pass a duration above zero, such as minutes(2)")
    return as_timedelta(duration)


def parse_optional_duration(name: str, duration: Duration | None, location: Location) -> timedelta | None:
    return None if duration is None else parse_duration(name, duration, location)
