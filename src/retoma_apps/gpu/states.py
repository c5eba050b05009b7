"""The five job statuses and the job ids of the API."""

from __future__ import annotations

from typing import Literal, get_args
from uuid import UUID

from retoma.states import RunState

Status = Literal["QUEUED", "IN_PROGRESS", "COMPLETED", "FAILED", "CANCELLED"]
STATUSES: tuple[Status, ...] = get_args(Status)
PREFIX = "orc-"
JOB_ID = r"^orc-[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}$"
STATUS_BY_RUN_STATE: dict[str, Status] = {
    "pending": "QUEUED",
    "running": "IN_PROGRESS",
    "paused": "IN_PROGRESS",
    "needs_review": "IN_PROGRESS",
    "stuck": "IN_PROGRESS",
    "cancelling": "CANCELLED",
    "completed": "COMPLETED",
    "completed_with_errors": "FAILED",
    "failed": "FAILED",
    "rejected": "FAILED",
    "cancelled": "CANCELLED",
}


def status_of(state: str, *, started: bool) -> Status:
    """Return the status. A run is in progress once its first part got a worker; before that it is queued."""
    status = STATUS_BY_RUN_STATE[state]
    return "QUEUED" if status == "IN_PROGRESS" and not started else status


def states_of(status: Status) -> list[RunState]:
    """Return the run states in which a job may have this status."""
    statuses = {"IN_PROGRESS", "QUEUED"} if status == "QUEUED" else {status}
    return [RunState(state) for state, mapped in STATUS_BY_RUN_STATE.items() if mapped in statuses]


def job_id(run: UUID) -> str:
    return f"{PREFIX}{run}"


def run_id(job: str) -> UUID | None:
    """Return None if the text cannot be a job id."""
    try:
        found = UUID(job.removeprefix(PREFIX))
    except ValueError:
        return None
    return found if job == job_id(found) else None
