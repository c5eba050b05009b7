"""Log lines of failed attempts. Their stacks are in the run's events."""

from __future__ import annotations

import json
from collections.abc import Sequence

from retoma.engine.claim_protocol import AttemptOutcome, Result
from retoma.engine.tenants import Tenants
from retoma.errors import DatabaseUnavailable
from retoma.logs import get_logger
from retoma.records import describe_recorded_error

log = get_logger(__name__)
FINAL_FAILURES = ("failed", "crashed_for_good")
RETRIED_FAILURES = ("retry", "crashed")


async def log_failed_attempts(outcomes: Sequence[Result | AttemptOutcome], tenants: Tenants) -> None:
    for outcome in outcomes:
        if isinstance(outcome, AttemptOutcome) and outcome.kind in FINAL_FAILURES + RETRIED_FAILURES:
            _log_failed_attempt(outcome, await _get_tenant_name(outcome.claim.tenant, tenants))


async def _get_tenant_name(tenant: int, tenants: Tenants) -> str:
    """Return the tenant's name, or its number if the database is unreachable: the line must not wait."""
    try:
        return await tenants.get_name(tenant)
    except DatabaseUnavailable:
        return str(tenant)


def _log_failed_attempt(outcome: AttemptOutcome, tenant: str) -> None:
    claim = outcome.claim
    error = describe_recorded_error(json.loads(outcome.error or "{}")) or None
    about = {"tenant": tenant, "run": str(claim.run), "step": claim.step, "attempt": claim.attempt}
    about |= {"code": outcome.code, "error": error} | ({"item": claim.item} if claim.item else {})
    if outcome.kind in FINAL_FAILURES:
        log.error("job_failed", message="an attempt failed, and it will not be retried", **about)
    else:
        log.warning(
            "attempt_failed",
            message="an attempt failed, and it will be retried",
            **about,
            in_seconds=round(outcome.delay.total_seconds(), 1),
        )
