"""The options of the decorators, and the policy that they make."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import fields, replace
from datetime import timedelta
from typing import Any, Literal, TypedDict, get_args

from retoma.define.durations import Duration, as_timedelta
from retoma.define.isolation import Isolation, as_isolation
from retoma.define.mistakes import Place, check_name, quoted, suggestion
from retoma.define.pool import Pool
from retoma.define.retry import Retry
from retoma.define.step import OnFailure, Policy, ProceedWhen

HIGHEST_PRIORITY = 10_000
MEANT = {"retries": "retry"}  # nearer in its letters to `retired`
StepReference = Callable[..., Any] | str
"""A step, by its function or by its name."""


class EachOptions(TypedDict, total=False):
    queue: str
    priority: int
    retry: Retry
    timeout: Duration
    total: Duration | None
    work_limit: Duration | None
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


def check_options(options: Mapping[str, Any], known: type, place: Place) -> None:
    for name in options:
        if name not in known.__annotations__:
            meant = [MEANT[name]] if name in MEANT else known.__annotations__
            raise place.mistake(f"there is no option {name!r}; {suggestion(name, meant)}")
    if "proceed_when" in options and not callable(options["proceed_when"]):
        raise place.mistake(
            f"proceed_when= is {options['proceed_when']!r}; give finished(...) or a function of the counts"
        )


def policy_of(options: Mapping[str, Any], defaults: Policy, place: Place) -> Policy:
    chosen = {field.name: options[field.name] for field in fields(Policy) if field.name in options}
    policy = replace(defaults, **chosen)
    _check(policy, place)
    timeout = limit_of("timeout", policy.timeout, place)
    total = None if policy.total is None else limit_of("total", policy.total, place)
    work_limit = None if policy.work_limit is None else limit_of("work_limit", policy.work_limit, place)
    if total is not None and work_limit is not None:
        raise place.mistake("total= counts the waits between attempts and work_limit= does not: give one of them")
    isolation = _isolation(policy.isolation, place)
    return replace(policy, timeout=timeout, total=total, work_limit=work_limit, isolation=isolation)


def _check(policy: Policy, place: Place) -> None:
    check_name("queue", policy.queue, place)
    if not isinstance(policy.priority, int) or abs(policy.priority) > HIGHEST_PRIORITY:
        raise place.mistake(
            f"priority= is {policy.priority!r}; give an int up to {HIGHEST_PRIORITY} either way, higher is sooner"
        )
    if not isinstance(policy.retry, Retry):
        raise place.mistake(f"retry= is {policy.retry!r}; give a Retry, such as Retry(3) or Retry(0) for none")
    _check_slots(policy, place)
    if policy.on_failure not in get_args(OnFailure):
        raise place.mistake(f"on_failure= is {policy.on_failure!r}; it is one of {quoted(get_args(OnFailure))}")


def _check_slots(policy: Policy, place: Place) -> None:
    if policy.pool is None:
        if policy.slots != 1:
            raise place.mistake("slots= goes with pool=, whose slots they are")
        return
    if not isinstance(policy.pool, Pool):
        raise place.mistake(f"pool= is {policy.pool!r}; give a Pool, such as Pool('gpu', capacity=3)")
    if not isinstance(policy.slots, int) or policy.slots < 1:
        raise place.mistake(f"slots= is {policy.slots!r}; give a number above zero")
    if policy.slots > policy.pool.capacity > 0:
        raise place.mistake(
            f"it takes {policy.slots} slots, and pool {policy.pool.name!r} has {policy.pool.capacity}: it can never run"
        )
    if policy.slots > (policy.pool.per_tenant or policy.slots):
        raise place.mistake(
            f"it takes {policy.slots} slots, and pool {policy.pool.name!r} gives a tenant {policy.pool.per_tenant}: "
            "it can never run"
        )


def _isolation(given: object, place: Place) -> Isolation | None:
    try:
        return as_isolation(given)
    except ValueError as error:
        raise place.mistake(str(error)) from None


def limit_of(name: str, duration: object, place: Place) -> timedelta:
    if not isinstance(duration, timedelta | int | float) or as_timedelta(duration) <= timedelta(0):
        raise place.mistake(f"{name}= is {duration!r}; give a duration above zero, such as minutes(2)")
    return as_timedelta(duration)
