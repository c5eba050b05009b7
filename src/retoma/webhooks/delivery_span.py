"""The span of an attempt to deliver a webhook, which its receiver can continue."""

from __future__ import annotations

import time
from urllib.parse import urlsplit

from retoma.masking import hide_folders, mask_secrets
from retoma.store.deliveries import ClaimedDelivery
from retoma.trace_context import SpanContext, derive_span_id, get_run_span_id
from retoma.tracing import TRACES, Span


def get_delivery_span(delivery: ClaimedDelivery) -> SpanContext:
    """Return the span of this attempt, in the trace of its run."""
    return TRACES.get_context(delivery.run.int, derive_span_id("delivery", delivery.id, delivery.attempt))


def record_delivery(delivery: ClaimedDelivery, started_at: int, status: int | None, error: str | None) -> None:
    """Record an attempt. The path of the URL is left out, because it may contain a token."""
    context, url = get_delivery_span(delivery), urlsplit(delivery.url)
    failed = error if status is None or status < 300 else f"the receiver answered {status}"
    TRACES.record(
        Span(
            name=f"webhook {delivery.event}",
            context=context,
            parent=context._replace(span_id=get_run_span_id()),
            started_at=started_at,
            ended_at=time.time_ns(),
            attributes={
                "retoma.run": str(delivery.run),
                "retoma.event": delivery.event,
                "retoma.delivery": str(delivery.id),
                "retoma.attempt": delivery.attempt,
                "http.request.method": "POST",
                "http.response.status_code": status,
                "server.address": url.hostname,
                "server.port": url.port or (443 if url.scheme == "https" else 80),
                "error.type": _get_error_type(status, failed),
            },
            kind="client",
            error=None if failed is None else hide_folders(mask_secrets(failed)),
        )
    )


def _get_error_type(status: int | None, failed: str | None) -> str | None:
    if failed is None:
        return None
    return "no_response" if status is None else str(status)
