"""The exporter of spans. This file needs the extra `tracing`."""

from __future__ import annotations

import threading
from collections.abc import Sequence
from importlib.metadata import version
from uuid import uuid4

from opentelemetry import context as otel_context
from opentelemetry import trace
from opentelemetry.context import Context
from opentelemetry.exporter.otlp.proto.http.trace_exporter import OTLPSpanExporter
from opentelemetry.sdk.resources import Resource
from opentelemetry.sdk.trace import ReadableSpan, TracerProvider
from opentelemetry.sdk.trace.export import BatchSpanProcessor, SpanExporter, SpanExportResult
from opentelemetry.sdk.trace.sampling import Decision, Sampler, SamplingResult
from opentelemetry.sdk.util.instrumentation import InstrumentationScope
from opentelemetry.trace import Link, NonRecordingSpan, SpanKind, Status, StatusCode, TraceFlags, TraceState
from opentelemetry.util.types import Attributes

from retoma.logs import get_logger
from retoma.trace_context import SpanContext
from retoma.tracing.span import Span

log = get_logger(__name__)
CHECK_SECONDS = 3.0
_RANDOM_BITS = (1 << 56) - 1
_OK = Status()


class Exporter:
    """Queues spans that have ended, and exports them from a thread of its own."""

    def __init__(self, service: str) -> None:
        self._resource = _build_resource(service)
        self._scope = InstrumentationScope("retoma", version("retoma"))
        self._provider = TracerProvider(resource=self._resource, shutdown_on_exit=False)
        self._sampler = self._provider.sampler = ByTraceId(self._provider.sampler)
        self._processor = BatchSpanProcessor(_LoggedExporter(OTLPSpanExporter()))
        self._provider.add_span_processor(self._processor)
        # Spans that steps start themselves are exported too, unless the application has set a provider of its own.
        if isinstance(trace.get_tracer_provider(), trace.ProxyTracerProvider):
            trace.set_tracer_provider(self._provider)

    def is_sampled(self, trace_id: int, parent: SpanContext | None) -> bool:
        around = None if parent is None else _build_context(parent, Context())
        return self._sampler.should_sample(around, trace_id, "").decision is Decision.RECORD_AND_SAMPLE

    def make_parent(self, context: SpanContext) -> None:
        otel_context.attach(_build_context(context))

    def record(self, span: Span) -> None:
        self._processor.on_end(
            ReadableSpan(
                span.name,
                _convert(span.context),
                None if span.parent is None else _convert(span.parent),
                self._resource,
                {name: value for name, value in span.attributes.items() if value is not None},
                (),
                [Link(_convert(each)) for each in span.links],
                SpanKind[span.kind.upper()],
                None,
                _OK if span.error is None else Status(StatusCode.ERROR, span.error),
                span.started_at,
                max(span.started_at, span.ended_at),
                self._scope,
            )
        )

    def close(self, seconds: float) -> None:
        # The processor waits for the collector as long as the exporter retries: leave its thread behind.
        flushing = threading.Thread(target=self._provider.shutdown, name="retoma-traces", daemon=True)
        flushing.start()
        flushing.join(seconds)
        if flushing.is_alive():
            log.warning("traces_lost", message="the collector did not accept the last spans in time")


class ByTraceId(Sampler):
    """Another sampler, given a trace id whose bits are all random.

    The library decides by the lower 64 bits, but two of them are the same in all ids of runs, since these are UUIDs.
    The lower 56 bits are random, as W3C Trace Context asks for.
    """

    def __init__(self, sampler: Sampler) -> None:
        self._sampler = sampler

    def should_sample(
        self,
        parent_context: Context | None,
        trace_id: int,
        name: str,
        kind: SpanKind | None = None,
        attributes: Attributes = None,
        links: Sequence[Link] | None = None,
        trace_state: TraceState | None = None,
    ) -> SamplingResult:
        random = (trace_id & _RANDOM_BITS) << 8
        return self._sampler.should_sample(parent_context, random, name, kind, attributes, links, trace_state)

    def get_description(self) -> str:
        return self._sampler.get_description()


class _LoggedExporter(SpanExporter):
    """Logs when the collector stops and starts to accept spans, rather than each failure."""

    def __init__(self, exporter: SpanExporter) -> None:
        self._exporter = exporter
        self._fails = False

    def export(self, spans: Sequence[ReadableSpan]) -> SpanExportResult:
        result = self._exporter.export(spans)
        if result is SpanExportResult.SUCCESS:
            if self._fails:
                log.info("traces_accepted", message="the collector accepts traces again")
            self._fails = False
        else:
            if not self._fails:
                log.warning("traces_refused", message="the collector does not accept traces; spans are being dropped")
            self._fails = True
        return result

    def shutdown(self) -> None:
        self._exporter.shutdown()


def is_accepted() -> bool:
    """Return whether the collector accepts an export without spans."""
    exporter = OTLPSpanExporter(timeout=CHECK_SECONDS)
    try:
        return exporter.export([]) is SpanExportResult.SUCCESS
    finally:
        exporter.shutdown()  # type: ignore[no-untyped-call]


def _build_resource(service: str) -> Resource:
    """Return what describes this process. The variables OTEL_SERVICE_NAME and OTEL_RESOURCE_ATTRIBUTES come first."""
    ours = {"service.version": version("retoma"), "service.instance.id": str(uuid4())}
    found = Resource.create()
    if str(found.attributes.get("service.name", "")).startswith("unknown_service"):
        found = found.merge(Resource({"service.name": service}))
    return Resource(ours).merge(found)


def _build_context(parent: SpanContext, around: Context | None = None) -> Context:
    return trace.set_span_in_context(NonRecordingSpan(_convert(parent, is_remote=around is not None)), around)


def _convert(context: SpanContext, *, is_remote: bool = False) -> trace.SpanContext:
    flags = TraceFlags(TraceFlags.SAMPLED if context.is_sampled else TraceFlags.DEFAULT)
    return trace.SpanContext(context.trace_id, context.span_id, is_remote, flags)
