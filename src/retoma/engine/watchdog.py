"""The watchdog: it marks runs that make no progress as stuck, with the cause, and resumes them automatically.

A run that waits for capacity, a delay, a rate limit or external work within its limits is not stuck.
"""

from __future__ import annotations

from datetime import timedelta
from typing import Any
from uuid import UUID

from retoma.engine import wait_reasons
from retoma.logs import get_logger
from retoma.records import StuckCause, Wait, WaitReason
from retoma.store import runs, watchdog
from retoma.store.database import Database
from retoma.store.watchdog import StalledRun

log = get_logger(__name__)
MAX_RUNS_PER_CHECK = 100
LEASE = timedelta(seconds=30)  # after which another process checks
FIRST_PAUSE = timedelta(seconds=5)
MAX_DOUBLINGS = 20

# Causes outside the run: it continues automatically once they pass, and never fails because of them.
OUTER_CAUSES = {
    WaitReason.NO_WORKER,
    WaitReason.UNDEFINED_STEP,
    WaitReason.NOT_CLAIMED,
    WaitReason.PROVIDER_DOWN,
    WaitReason.PROVIDER_REJECTED,
    WaitReason.NO_PROVIDER,
}


async def check_due_runs(database: Database, heartbeat_timeout: timedelta) -> int:
    """Check all runs that are due, and return their number."""
    found = await watchdog.claim_runs_to_check(database, MAX_RUNS_PER_CHECK, LEASE)
    for watched in found:
        await _check_run(database, watched, heartbeat_timeout)
    return len(found)


async def _check_run(database: Database, watched: StalledRun, heartbeat_timeout: timedelta) -> None:
    if watched.is_overdue:
        await _expire(database, watched.run)
        return
    cause = await _find_cause(database, watched, heartbeat_timeout)
    if cause is None:
        await _record_progress(database, watched)
    elif watched.state != "stuck":
        await _mark_stuck(database, watched, cause)
    elif watched.cause is None or cause["cause"] in OUTER_CAUSES:
        await _postpone_or_clear(database, watched, cause)
    elif watched.resumes < watched.max_resumes:
        await watchdog.resume_run(
            database, watched.run, None, "watchdog", automatic=True, pause=get_resume_pause(watched.resumes + 1)
        )
    elif await watchdog.fail_stuck_run(database, watched.run, watched.last_progress_event):
        log.error(
            "run_given_up",
            message="failed a stuck run: it made no progress after its last automatic resume",
            run=str(watched.run),
            resumes=watched.resumes,
        )


async def _expire(database: Database, run: UUID) -> None:
    if (
        await watchdog.fail_overdue_run(database, run)
        and (late := await runs.get_run(database, run, with_input=False)) is not None
    ):
        log.error(
            "run_deadline_exceeded",
            message="failed a run that did not end by its deadline",
            run=str(run),
            pipeline=late.pipeline,
            tenant=late.tenant,
        )


async def _record_progress(database: Database, watched: StalledRun) -> None:
    if watched.state == "stuck":
        await watchdog.clear_stuck(database, watched.run, watched.stuck_after)
    else:
        await watchdog.postpone_check(database, watched.run, watched.stuck_after)


async def _mark_stuck(database: Database, watched: StalledRun, cause: dict[str, Any]) -> None:
    pause = FIRST_PAUSE if cause["cause"] in OUTER_CAUSES else get_resume_pause(watched.resumes)
    if await watchdog.mark_stuck(database, watched.run, watched.last_progress_event, cause["cause"], cause, pause):
        log.warning(
            "run_stuck",
            message="a run makes no progress",
            run=str(watched.run),
            cause=cause["cause"],
            step=cause.get("step"),
        )


async def _postpone_or_clear(database: Database, watched: StalledRun, cause: dict[str, Any]) -> None:
    """Clear the state if the run progressed since; otherwise check again later: only others can fix the cause."""
    if watched.cause is None and watched.still_for < watched.stuck_after:
        await watchdog.clear_stuck(database, watched.run, watched.stuck_after)
    else:
        await watchdog.postpone_check(database, watched.run, FIRST_PAUSE)


def get_resume_pause(resumes: int) -> timedelta:
    """Return the pause before the next resume, after so many."""
    return FIRST_PAUSE * (1 << min(resumes, MAX_DOUBLINGS))


async def _find_cause(database: Database, watched: StalledRun, heartbeat_timeout: timedelta) -> dict[str, Any] | None:
    """Return why the run makes no progress, or None if it makes some or waits for an accepted reason."""
    running = await watchdog.list_running_jobs(database, watched.run)
    if any(not job["is_overdue"] for job in running):
        return None
    about: dict[str, Any] = {"still_seconds": round(watched.still_for.total_seconds())}
    if (last := await watchdog.get_last_item(database, watched.run)) is not None:
        about |= {"last_step": last["step"], "last_item": last["item"]}
    if running:
        oldest = {name: running[0][name] for name in ("step", "item", "worker")}
        return about | oldest | {"cause": StuckCause.NO_PROGRESS} | await _get_last_error(database, watched, oldest)
    waits = await wait_reasons.list_waits(database, watched.run, heartbeat_timeout)
    if any(wait.reason not in OUTER_CAUSES for wait in waits):
        return None
    return about | (_describe_wait(waits[0]) if waits else {"cause": StuckCause.NOTHING_RUNS})


async def _get_last_error(database: Database, watched: StalledRun, job: dict[str, Any]) -> dict[str, Any]:
    """Return message and stack of the previous attempt of a running job, if it failed."""
    for event in await runs.list_events_of_job(database, watched.run, job["step"], job["item"], 1):
        if event.kind == "retry":
            return {name: event.data[name] for name in ("message", "stack") if name in event.data}
    return {}


def _describe_wait(wait: Wait) -> dict[str, Any]:
    until = None if wait.until is None else wait.until.isoformat()
    details = {
        "cause": wait.reason,
        "step": wait.step,
        "item": wait.item,
        "queue": wait.queue,
        "explanation": wait.explanation,
    }
    return details | {name: value for name, value in (("pool", wait.pool), ("until", until)) if value is not None}
