"""The body of a callback."""

from __future__ import annotations

from typing import Any

from retoma import Client
from retoma_apps.gpu.outcomes import Run, began, execution, moment, outcome
from retoma_apps.gpu.states import job_id, status_of


async def callback(client: Client, run: Run, event: str) -> dict[str, Any] | None:
    """It says the same at every attempt, of the job as it was at the event: its times are not those of the sending.

    What happens before a job has ended is left to the engine's own body: the document has no words for it.
    """
    if run.ended_at is None:
        return None
    began_at = await began(client, run)
    return {
        "jobId": job_id(run.id),
        "id_roteiro": run.input.get("id_roteiro"),
        "status": status_of(run.state, begun=began_at is not None),
        "operation": run.pipeline,
        **await outcome(client, run, began_at),
        "execution": execution(run, began_at),
        "timestamp": moment(run.ended_at or run.created_at),
    }
