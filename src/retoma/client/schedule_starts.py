"""Start the runs of schedules that are due. Any number of processes may do this at once, without a leader.

A process only starts runs of pipelines whose code it has: it checks the inputs as any start does. What becomes of a due
time, the start of its run and the next due time are one transaction, so a crash at any moment starts nothing twice and
loses nothing.
"""

from __future__ import annotations

import asyncio
import hashlib
from datetime import datetime
from typing import TYPE_CHECKING

from retoma.client.core import Core, TenantLimit
from retoma.client.schedule_plans import add_jitter, make_plan
from retoma.client.starts import build_start
from retoma.define.catch_up import DueTimes, choose_due_time
from retoma.define.input_template import Occurrence, render
from retoma.errors import DatabaseUnavailable, describe_error
from retoma.logs import get_logger
from retoma.masking import mask_secrets
from retoma.records import NoStart, Schedule
from retoma.store import schedules
from retoma.store.schedules import Fired, ScheduledStart

if TYPE_CHECKING:
    from retoma.client.client import Client

log = get_logger(__name__)
PAUSE_SECONDS = 1.0
MAX_DUE = 500
MAX_PASSES = 100
MAX_MESSAGE_LENGTH = 2_000


async def run_schedules(client: Client) -> None:
    """Save the schedules of the application, then start their runs when they are due, until cancelled."""
    is_declared = False
    while True:
        try:
            if not is_declared:
                await client.schedules.declare()
                is_declared = True
            await client.schedules.start_due()
        except DatabaseUnavailable as error:
            log.warning(
                "schedules_delayed", message="schedules wait for the database, which is unreachable", error=error
            )
        await asyncio.sleep(PAUSE_SECONDS)


async def start_due(core: Core) -> int:
    """Start the runs that are due now. Return how many were started."""
    count = 0
    for _ in range(MAX_PASSES):
        fired = await _fire_all(core)
        count += sum(each.run is not None for each in fired)
        if not fired:
            break
    return count


async def _fire_all(core: Core) -> list[Fired]:
    """Decide the first due time of each schedule that is due. Return what became of them."""
    if core.app is None:
        return []
    found = []
    for schedule in await schedules.list_due(core.database, list(core.app.pipelines), MAX_DUE):
        try:
            fired = await fire(core, schedule)
        except DatabaseUnavailable:
            raise
        except Exception as error:  # one schedule must not stop the others
            log.error(
                "schedule_failed",
                message="a schedule could not start its run; it is tried again",
                schedule=schedule.name,
                tenant=schedule.tenant,
                error=error,
                exc_info=True,
            )
            continue
        if fired is not None:
            found.append(fired)
    return found


async def fire(core: Core, schedule: Schedule) -> Fired | None:
    """Start the run of a schedule that is due, or record why it does not start.

    Return None if another process did so, or the schedule was changed since it was read.
    """
    assert schedule.next_at is not None
    now, plan = await core.now(), make_plan(schedule)
    rule = plan.get_rule(schedule.anchor_at)
    due = choose_due_time(rule, schedule.next_at, now, plan.catch_up, plan.catch_up_limit, plan.jitter)
    start, message = (None, None) if due.due_at is None else await _try_build(core, schedule, due.due_at)
    key = None if due.due_at is None else make_key(schedule, due.due_at)
    fired = await schedules.fire_schedule(
        core.database,
        schedule,
        missed=due.missed,
        due_at=due.due_at,
        start=start,
        key=key,
        digest=make_digest(key or ""),
        reason=None if message is None else NoStart.INVALID_INPUTS,
        message=message,
        **add_jitter(plan, schedule.tenant, schedule.name, due.next_at)._asdict(),
    )
    if fired is not None:
        _log_fired(schedule, due, fired)
    return fired


async def build_scheduled_start(core: Core, schedule: Schedule, due_at: datetime) -> ScheduledStart:
    """Build the start of a run, with its inputs at its due time. Raise InvalidInput if they are not valid."""
    owner = core.app and core.app.find_owner(schedule.pipeline)
    # The run may name only files of its tenant, even if an administrator saved the schedule.
    limited = (core.scope_to(owner) if owner else core).limit_to(TenantLimit(frozenset({schedule.tenant})))
    previous = schedule.last_due_at or schedule.created_at
    inputs = render(schedule.inputs, Occurrence(schedule.name, due_at, previous, schedule.time_zone))
    start = await build_start(limited, schedule.pipeline, inputs, tenant=schedule.tenant)
    return ScheduledStart(start.id, start.version, start.input, start.title)


def make_key(schedule: Schedule, due_at: datetime) -> str:
    return f"schedule:{schedule.id}:{due_at.isoformat()}"


def make_digest(key: str) -> bytes:
    """Return the digest of a start by a schedule: its key says all, so a changed template returns the same run."""
    return hashlib.sha256(key.encode()).digest()


async def _try_build(core: Core, schedule: Schedule, due_at: datetime) -> tuple[ScheduledStart | None, str | None]:
    """Return the start, or why the application refuses its inputs."""
    try:
        return await build_scheduled_start(core, schedule, due_at), None
    except DatabaseUnavailable:
        raise
    except Exception as error:  # noqa: BLE001  (a validator of the application may raise anything)
        return None, mask_secrets(describe_error(error))[:MAX_MESSAGE_LENGTH]


def _log_fired(schedule: Schedule, due: DueTimes, fired: Fired) -> None:
    fields = {"schedule": schedule.name, "tenant": schedule.tenant, "pipeline": schedule.pipeline}
    if due.missed:
        log.warning(
            "schedule_missed",
            message="a schedule was due while nothing could start its runs",
            first_due_at=schedule.next_at,
            count=due.missed,
            **fields,
        )
    if fired.run is not None:
        log.info(
            "schedule_started",
            message="a schedule has started a run",
            run=str(fired.run),
            due_at=due.due_at,
            late_seconds=fired.late_seconds,
            **fields,
        )
    elif fired.reason is not None:
        log.warning(
            "schedule_skipped",
            message="a schedule was due and has started no run",
            reason=str(fired.reason),
            detail=fired.message,
            due_at=due.due_at,
            **fields,
        )
