"""The body of a webhook, by the names that users of the classifier know."""

from __future__ import annotations

from typing import Any

from retoma import Client
from retoma.records import Run
from retoma_apps.classifier import executions


async def build_callback_body(client: Client, run: Run, event: str) -> dict[str, Any] | None:
    """It tells of the execution as it was at the event, with how many documents stood how when it is first sent.

    None leaves events of other kinds to the engine's own body.
    """
    if not event.startswith("run."):
        return None
    seen = await executions.get_execution(client, run)
    return seen.to_json() | {"evento": event, "travamento": await executions.get_stuck_details(client, run)}
