"""The body of a webhook, by the names that users of the classifier know."""

from __future__ import annotations

from typing import Any

from retoma import Client
from retoma.records import Run
from retoma_apps.classifier import batches


async def callback(client: Client, run: Run, event: str) -> dict[str, Any] | None:
    """It tells of the execution as it was at the event, with how many documents stood how when it is first sent.

    None leaves events of other kinds to the engine's own body.
    """
    if not event.startswith("run."):
        return None
    seen = await batches.execution(client, run)
    return seen.to_json() | {"evento": event, "travamento": await batches.stuck_details(client, run)}
