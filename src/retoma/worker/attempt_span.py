"""The span of an attempt, with the requests that it made to other services."""

from __future__ import annotations

import time
from collections.abc import Iterator
from dataclasses import dataclass

from retoma.define.charge import Charge
from retoma.engine import outcomes
from retoma.engine.claim_protocol import Claim
from retoma.engine.outcomes import AttemptError, Outcome
from retoma.trace_context import (
    CURRENT_SPAN,
    LAST_CALL,
    HttpCall,
    LiveSpan,
    SpanContext,
    derive_span_id,
    get_attempt_span_id,
    get_run_span_id,
)
from retoma.tracing import TRACES, Span
from retoma.tracing.span import AttributeValue

STATES: dict[type[Outcome], str] = {
    outcomes.Success: "succeeded",
    outcomes.Retried: "retried",
    outcomes.Failure: "failed",
    outcomes.Skip: "skipped",
    outcomes.Postponed: "postponed",
    outcomes.Parked: "parked",
    outcomes.ReviewRequest: "needs_review",
    outcomes.OverBudget: "over_budget",
    outcomes.Interrupted: "interrupted",
}


@dataclass(slots=True)
class AttemptSpan(LiveSpan):
    pipeline: str = ""
    tenant: str = ""
    worker: int = 0
    provider: str | None = None


def begin_span(claim: Claim, pipeline: str, worker: int) -> AttemptSpan:
    """Start the span of an attempt, for the current task."""
    span_id = get_attempt_span_id(claim.step, claim.item, claim.revision, claim.fence)
    span = AttemptSpan(TRACES.get_context(claim.run.int, span_id), pipeline=pipeline, worker=worker)
    CURRENT_SPAN.set(span)
    LAST_CALL.set(None)
    TRACES.make_parent(span.context)
    return span


def get_log_span(claim: Claim) -> SpanContext:
    """Return the span of an attempt, for log lines about it."""
    return SpanContext(claim.run.int, get_attempt_span_id(claim.step, claim.item, claim.revision, claim.fence))


def add_charge(charge: Charge) -> None:
    """Describe what the current attempt paid for, on the request that it was for or else on a span of its own."""
    span = CURRENT_SPAN.get()
    if span is None:
        return
    call = _find_charged_call(span)
    if call is None:
        now = time.time_ns()
        call = HttpCall("", "", 0, now, now)
        span.add_call(call)
    call.attributes = _describe_charge(charge)


def _find_charged_call(span: LiveSpan) -> HttpCall | None:
    """Return the last request of this task. If that has a charge, or `ctx.once` made it in another task, return the
    only successful request of the attempt without one."""
    last = LAST_CALL.get()
    if last is not None and not last.attributes:
        return last
    free = [call for call in span.calls if call.ended_at and call.error is None and not call.attributes]
    return free[0] if len(free) == 1 else None


def record_span(span: AttemptSpan, outcome: Outcome) -> None:
    """Record an attempt whose outcome the database has, unless it did not start."""
    if isinstance(outcome, outcomes.Returned):
        return
    claim = outcome.claim
    error = _get_error(outcome)
    is_error = isinstance(outcome, outcomes.Failure | outcomes.Retried)
    attributes: dict[str, AttributeValue] = {
        **_describe_job(span, claim),
        "retoma.attempt": claim.attempt,
        "retoma.worker": span.worker,
        "retoma.provider": span.provider or (error.provider if error else None),
        "retoma.state": STATES[type(outcome)],
        "retoma.code": error.code if error else None,
        "error.type": (error.type or error.code) if error and is_error else None,
    }
    TRACES.record(
        Span(
            name=f"attempt {claim.step}",
            context=span.context,
            parent=span.context._replace(span_id=get_run_span_id(claim.revision)),
            started_at=span.started_at,
            ended_at=span.ended_at or time.time_ns(),
            attributes=attributes,
            error=(error.message or error.code) if error and is_error else None,
            links=span.links,
        )
    )
    for call_span in _build_call_spans(span, claim):
        TRACES.record(call_span)


def _get_error(outcome: Outcome) -> AttemptError | None:
    match outcome:
        case outcomes.Failure(error=error) | outcomes.Retried(error=error) | outcomes.Postponed(error=error):
            return error
        case _:
            return None


def _describe_job(span: AttemptSpan, claim: Claim) -> dict[str, AttributeValue]:
    return {
        "retoma.run": str(claim.run),
        "retoma.pipeline": span.pipeline,
        "retoma.tenant": span.tenant,
        "retoma.step": claim.step,
        "retoma.item": claim.item or None,
        "retoma.revision": claim.revision,
    }


def _build_call_spans(span: AttemptSpan, claim: Claim) -> Iterator[Span]:
    for number, call in enumerate(span.calls):
        attributes = {**_describe_job(span, claim), **call.attributes}
        if call.method:
            attributes |= {
                "http.request.method": call.method,
                "server.address": call.host,
                "server.port": call.port,
                "http.response.status_code": call.status,
                "error.type": call.error,
            }
        yield Span(
            name=f"{call.method} {call.host}" if call.method else f"charge {call.attributes['retoma.charge.provider']}",
            context=span.context._replace(span_id=derive_span_id("call", span.context.span_id, number)),
            parent=span.context,
            started_at=call.started_at,
            ended_at=call.ended_at,
            attributes=attributes,
            kind="client" if call.method else "internal",
            error=call.error,
        )


def _describe_charge(charge: Charge) -> dict[str, AttributeValue]:
    described: dict[str, AttributeValue] = {
        "retoma.charge.provider": charge.provider,
        "retoma.charge.resource": charge.resource,
        "retoma.charge.units": charge.units or None,
        "retoma.charge.dollars": None if charge.micros is None else charge.micros / 1_000_000,
    }
    if charge.tokens_in or charge.tokens_out:
        described |= {
            "gen_ai.provider.name": charge.provider,
            "gen_ai.request.model": charge.resource,
            "gen_ai.usage.input_tokens": charge.tokens_in,
            "gen_ai.usage.output_tokens": charge.tokens_out,
        }
    return described
