"""What a worker logs of the attempts that failed; their stacks are in the events."""

from __future__ import annotations

import json

from retoma.engine.exchange import SetBack
from retoma.logs import get_logger

log = get_logger("retoma.worker")


def tell(outcome: SetBack) -> None:
    if outcome.outcome not in ("failed", "retry"):
        return
    claim = outcome.claim
    error = json.loads(outcome.error or "{}").get("message")
    about = log.bind(run=str(claim.run), step=claim.step, attempt=claim.attempt, code=outcome.code, error=error)
    if claim.item:
        about = about.bind(item=claim.item)
    if outcome.outcome == "failed":
        about.error("failed")
    else:
        about.warning("failed, will be tried again", in_seconds=round(outcome.delay.total_seconds(), 1))
