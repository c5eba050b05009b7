"""Log lines of failed attempts, whose stacks are in the run's events, and of jobs that wait because of a budget."""

from __future__ import annotations

from collections.abc import Sequence

from retoma.engine.outcomes import Failure, Outcome, OverBudget, Retried
from retoma.errors import DatabaseUnavailable
from retoma.logs import describe_span, get_logger
from retoma.records import describe_recorded_error
from retoma.store.tenants import Tenants
from retoma.tracing import TRACES
from retoma.worker.attempt_span import get_log_span

log = get_logger(__name__)


async def log_failed_attempts(reported: Sequence[Outcome], tenants: Tenants) -> None:
    for outcome in reported:
        if isinstance(outcome, (Failure, Retried)):  # a union would be built for each outcome
            _log_failed_attempt(outcome, await _get_tenant_name(outcome.claim.tenant, tenants))
        elif isinstance(outcome, OverBudget):
            _log_budget(outcome, await _get_tenant_name(outcome.claim.tenant, tenants))


async def _get_tenant_name(tenant: int, tenants: Tenants) -> str:
    """Return the tenant's name, or its number if the database is unreachable: the line must not wait."""
    try:
        return await tenants.get_name(tenant)
    except DatabaseUnavailable:
        return str(tenant)


def _log_budget(outcome: OverBudget, tenant: str) -> None:
    claim = outcome.claim
    log.warning(
        "budget_reached",
        message="a job waits for a person, because it would pass a budget",
        tenant=tenant,
        run=str(claim.run),
        step=claim.step,
        **({"item": claim.item} if claim.item else {}),
        reason=outcome.reason.message,
    )


def _log_failed_attempt(outcome: Failure | Retried, tenant: str) -> None:
    claim = outcome.claim
    error = describe_recorded_error(outcome.error.to_dict()) or None
    about = {"tenant": tenant, "run": str(claim.run), "step": claim.step, "attempt": claim.attempt}
    about |= {"code": outcome.error.code, "error": error} | ({"item": claim.item} if claim.item else {})
    providers = {"provider": outcome.error.provider, "next_provider": outcome.error.next_provider}
    about |= {name: value for name, value in providers.items() if value is not None}
    if TRACES.is_on:
        about |= describe_span(get_log_span(claim))
    if isinstance(outcome, Failure):
        log.error("job_failed", message="an attempt failed, and no worker will retry it", **about)
    else:
        log.warning(
            "attempt_failed",
            message="an attempt failed, and it will be retried unless its run stops",
            **about,
            in_seconds=round(outcome.delay.total_seconds(), 1),
        )
