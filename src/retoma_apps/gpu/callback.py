"""The body of a callback."""

from __future__ import annotations

from typing import Any

from retoma import Client
from retoma_apps.gpu.results import Run, format_execution, format_time, get_outcome, get_started_at
from retoma_apps.gpu.states import job_id, status_of


async def build_callback_body(client: Client, run: Run, event: str) -> dict[str, Any] | None:
    """It says the same at every attempt, of the job as it was at the event: its times are not those of the sending.

    What happens before a job has ended is left to the engine's own body: the document has no words for it.
    """
    if run.ended_at is None:
        return None
    began_at = await get_started_at(client, run)
    return {
        "jobId": job_id(run.id),
        "id_roteiro": run.input.get("id_roteiro"),
        "status": status_of(run.state, started=began_at is not None),
        "operation": run.pipeline,
        **await get_outcome(client, run, began_at),
        "execution": format_execution(run, began_at),
        "timestamp": format_time(run.ended_at or run.created_at),
    }
