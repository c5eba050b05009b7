"""What a worker logs of the attempts that failed; their stacks are in the events."""

from __future__ import annotations

import json
from collections.abc import Sequence

from retoma.engine.exchange import Result, SetBack
from retoma.engine.tenants import Tenants
from retoma.errors import DatabaseUnavailable
from retoma.logs import get_logger
from retoma.records import describe_recorded

log = get_logger("retoma.worker")
FOR_GOOD = ("failed", "crashed_for_good")
FOR_NOW = ("retry", "crashed")


async def tell(outcomes: Sequence[Result | SetBack], tenants: Tenants) -> None:
    for outcome in outcomes:
        if isinstance(outcome, SetBack) and outcome.outcome in FOR_GOOD + FOR_NOW:
            _tell(outcome, await _name(outcome.claim.tenant, tenants))


async def _name(tenant: int, tenants: Tenants) -> str:
    """Its number if the database does not answer: a line now is worth more than a name later."""
    try:
        return await tenants.name_of(tenant)
    except DatabaseUnavailable:
        return str(tenant)


def _tell(outcome: SetBack, tenant: str) -> None:
    claim = outcome.claim
    error = describe_recorded(json.loads(outcome.error or "{}")) or None
    about = log.bind(tenant=tenant, run=str(claim.run), step=claim.step, attempt=claim.attempt)
    about = about.bind(code=outcome.code, error=error)
    if claim.item:
        about = about.bind(item=claim.item)
    if outcome.outcome in FOR_GOOD:
        about.error("failed")
    else:
        about.warning("failed, will be tried again", in_seconds=round(outcome.delay.total_seconds(), 1))
