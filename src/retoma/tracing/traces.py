"""The traces of this process."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING

from retoma.checks import Finding
from retoma.logs import get_logger
from retoma.masking import mask_secrets
from retoma.trace_context import SpanContext
from retoma.tracing.configuration import SUBJECT, explain_problem, find_endpoint, mask_headers
from retoma.tracing.span import Span

if TYPE_CHECKING:
    from retoma.tracing.exporter import Exporter

log = get_logger(__name__)
FLUSH_SECONDS = 5.0  # for the last spans when a process ends


class Traces:
    """Off until `open`. While `is_on` is False, call nothing else."""

    def __init__(self) -> None:
        self.is_on = False
        self._exporter: Exporter | None = None

    def open(self, service: str) -> None:
        """Export spans from now on, as the service of this name, if that is configured. Log it if it cannot be done."""
        if problem := explain_problem():
            log.warning("traces_unavailable", message=f"{problem.message}: {problem.advice}")
        elif not self.is_on and (endpoint := find_endpoint()) is not None:
            from retoma.tracing.exporter import Exporter

            mask_headers()
            self._exporter = Exporter(service)
            self.is_on = True
            log.info("traces_exported", message="this process exports traces", endpoint=endpoint)

    @contextmanager
    def exporting(self, service: str) -> Iterator[None]:
        """Export spans while the block runs, if that is configured."""
        self.open(service)
        try:
            yield
        finally:
            self.close()

    def close(self) -> None:
        """Export what is left, for at most FLUSH_SECONDS."""
        self.is_on = False
        if self._exporter is not None:
            self._exporter.close(FLUSH_SECONDS)
            self._exporter = None

    def get_context(self, trace_id: int, span_id: int, parent: SpanContext | None = None) -> SpanContext:
        """Return the context of a span, with the sampler's decision. `parent` is a span of another system, if any."""
        return SpanContext(
            trace_id, span_id, self._exporter is not None and self._exporter.is_sampled(trace_id, parent)
        )

    def make_parent(self, context: SpanContext) -> None:
        """Make this the parent of spans that other code starts with OpenTelemetry, from here on in this task."""
        if self._exporter is not None:
            self._exporter.make_parent(context)

    def record(self, span: Span) -> None:
        """Queue a span for export. Never waits."""
        if self._exporter is not None and span.context.is_sampled:
            self._exporter.record(span)


TRACES = Traces()


def check_traces() -> Finding:
    """Check whether traces are configured, and whether the collector accepts them."""
    if problem := explain_problem():
        return problem
    endpoint = find_endpoint()
    if endpoint is None:
        return Finding("ok", SUBJECT, "off: set OTEL_EXPORTER_OTLP_ENDPOINT to export them")
    from retoma.tracing.exporter import is_accepted

    mask_headers()
    if is_accepted():
        return Finding("ok", SUBJECT, f"exported to {mask_secrets(endpoint)}")
    message = f"the collector at {mask_secrets(endpoint)} does not accept traces"
    return Finding("warning", SUBJECT, message, "check that it is running, its address, and OTEL_EXPORTER_OTLP_HEADERS")
