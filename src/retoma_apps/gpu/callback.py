"""The body of a callback."""

from __future__ import annotations

from typing import Any

from retoma import Client
from retoma.records import Run
from retoma_apps.gpu.operations.results import format_execution, format_time, get_outcome, get_started_at
from retoma_apps.gpu.states import job_id, status_of


async def build_callback_body(client: Client, run: Run, event: str) -> dict[str, Any] | None:
    """Return the same body at every attempt: it describes the job at the event, not at the time of sending.

    Return None before the job has ended: the engine's own body is then sent.
    """
    if run.ended_at is None:
        return None
    started_at = await get_started_at(client, run)
    return {
        "jobId": job_id(run.id),
        "id_roteiro": run.input.get("id_roteiro"),
        "status": status_of(run.state, started=started_at is not None),
        "operation": run.pipeline,
        **await get_outcome(client, run, started_at),
        "execution": format_execution(run, started_at),
        "timestamp": format_time(run.ended_at or run.created_at),
    }
