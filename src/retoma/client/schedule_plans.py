"""Schedules as the database has them, and what they do."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import datetime
from typing import Any, NamedTuple

from retoma.define.recurrence import Rule, find_next
from retoma.define.schedule import SchedulePlan, encode_template, get_jitter
from retoma.records import Schedule


class DueTime(NamedTuple):
    """When a schedule is due, and when it starts by its jitter. Neither: never again."""

    next_at: datetime | None
    starts_at: datetime | None


def make_plan(schedule: Schedule) -> SchedulePlan:
    return SchedulePlan(
        pipeline=schedule.pipeline,
        cron=schedule.cron,
        every=schedule.every,
        time_zone=schedule.time_zone,
        inputs=schedule.inputs,
        title=schedule.title,
        catch_up=schedule.catch_up,
        catch_up_limit=schedule.catch_up_limit,
        jitter=schedule.jitter,
        overlap=schedule.overlap,
    )


def get_rule(schedule: Schedule) -> Rule:
    return make_plan(schedule).get_rule(schedule.anchor_at)


def find_due_time(plan: SchedulePlan, tenant: str, name: str, anchor_at: datetime, after: datetime) -> DueTime:
    """Return when a schedule is due for the first time after this one."""
    return add_jitter(plan, tenant, name, find_next(plan.get_rule(anchor_at), after))


def add_jitter(plan: SchedulePlan, tenant: str, name: str, due_at: datetime | None) -> DueTime:
    if due_at is None:
        return DueTime(None, None)
    return DueTime(due_at, due_at + get_jitter(f"{tenant}/{name}", due_at, plan.jitter))


def list_columns(plan: SchedulePlan) -> dict[str, Any]:
    """Return the plan as the columns of its row."""
    return {**vars(plan), "inputs": encode_template(plan.inputs)}


def describe(plan: SchedulePlan) -> Mapping[str, Any]:
    """Return what the audit log keeps of the plan: what is set, with durations in seconds."""
    values = {
        **vars(plan),
        "every": plan.every and plan.every.total_seconds(),
        "jitter": plan.jitter.total_seconds() or None,
    }
    return {name: value for name, value in values.items() if value not in (None, {})}
