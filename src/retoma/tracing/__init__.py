"""Traces by OpenTelemetry: on if an OTLP endpoint is set and the extra `tracing` is installed, otherwise free of cost.

    if TRACES.is_on:
        TRACES.record(Span("review script", context, parent, opened_at, ended_at, {"retoma.step": "script"}))

Spans are recorded when they have ended, and a thread sends them in batches. Its queue is bounded: if the collector is
slow or unreachable, spans are dropped, and nothing waits.
"""

from retoma.tracing.span import Span, to_nanoseconds
from retoma.tracing.traces import TRACES, Traces

__all__ = ["TRACES", "Span", "Traces", "to_nanoseconds"]
