"""What a worker logs of the attempts that failed; their stacks are in the events."""

from __future__ import annotations

import json
from collections.abc import Sequence

from retoma.engine.claim_protocol import AttemptOutcome, Result
from retoma.engine.tenants import Tenants
from retoma.errors import DatabaseUnavailable
from retoma.logs import get_logger
from retoma.records import describe_recorded_error

log = get_logger("retoma.worker")
FINAL_FAILURES = ("failed", "crashed_for_good")
RETRIED_FAILURES = ("retry", "crashed")


async def log_failed_attempts(outcomes: Sequence[Result | AttemptOutcome], tenants: Tenants) -> None:
    for outcome in outcomes:
        if isinstance(outcome, AttemptOutcome) and outcome.kind in FINAL_FAILURES + RETRIED_FAILURES:
            _log_failed_attempt(outcome, await _get_tenant_name(outcome.claim.tenant, tenants))


async def _get_tenant_name(tenant: int, tenants: Tenants) -> str:
    """Its number if the database does not answer: a line now is worth more than a name later."""
    try:
        return await tenants.get_name(tenant)
    except DatabaseUnavailable:
        return str(tenant)


def _log_failed_attempt(outcome: AttemptOutcome, tenant: str) -> None:
    claim = outcome.claim
    error = describe_recorded_error(json.loads(outcome.error or "{}")) or None
    about = log.bind(tenant=tenant, run=str(claim.run), step=claim.step, attempt=claim.attempt)
    about = about.bind(code=outcome.code, error=error)
    if claim.item:
        about = about.bind(item=claim.item)
    if outcome.kind in FINAL_FAILURES:
        about.error("failed")
    else:
        about.warning("failed, will be tried again", in_seconds=round(outcome.delay.total_seconds(), 1))
