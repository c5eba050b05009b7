"""The body of a webhook, with the classifier's own field names."""

from __future__ import annotations

from typing import Any

from retoma import Client
from retoma.records import Run
from retoma_apps.classifier.operations import executions


async def build_callback_body(client: Client, run: Run, event: str) -> dict[str, Any] | None:
    """Return the execution as it was at the event, with the document counts as of the first attempt to send it.

    Return None for other kinds of events: the engine's own body is then sent.
    """
    if not event.startswith("run."):
        return None
    execution = await executions.get_execution(client, run)
    return execution.to_json() | {"evento": event, "travamento": await executions.get_stuck_details(client, run)}
