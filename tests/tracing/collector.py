"""A collector of traces on this machine: it speaks OTLP over HTTP, and keeps the spans that it accepts."""

from __future__ import annotations

import gzip
import os
import threading
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any
from unittest.mock import patch
from uuid import UUID

from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import ExportTraceServiceRequest
from opentelemetry.proto.trace.v1.trace_pb2 import Span as WireSpan
from opentelemetry.proto.trace.v1.trace_pb2 import Status

from retoma.trace_context import SpanContext
from retoma.tracing import TRACES
from tests.cli.terminal import wait_until


@dataclass(frozen=True)
class ReceivedSpan:
    """A span as the collector got it, with its attributes as values of Python."""

    name: str
    trace: UUID
    id: str
    parent: str
    kind: str
    seconds: float
    error: str | None
    attributes: Mapping[str, Any]
    links: tuple[tuple[UUID, str], ...]
    service: str

    @property
    def context(self) -> SpanContext:
        return SpanContext(self.trace.int, int(self.id, 16))


@dataclass
class Collector:
    """`opened` is cleared to let it hang: it answers once it is set again."""

    url: str = ""
    status: int = 200
    bodies: list[bytes] = field(default_factory=list)
    headers: list[dict[str, str]] = field(default_factory=list)
    opened: threading.Event = field(default_factory=threading.Event)
    requested: threading.Event = field(default_factory=threading.Event)

    @property
    def variables(self) -> dict[str, str]:
        return {"OTEL_EXPORTER_OTLP_ENDPOINT": self.url, "OTEL_BSP_SCHEDULE_DELAY": "100"}

    @property
    def spans(self) -> list[ReceivedSpan]:
        return [span for body in list(self.bodies) for span in _parse(body)]

    def find_all(self, name: str) -> list[ReceivedSpan]:
        """Return the spans of this name, the first first."""
        return [span for span in self.spans if span.name == name]

    def get(self, name: str) -> ReceivedSpan:
        (span,) = self.find_all(name)
        return span

    def wait_for(self, name: str, count: int = 1) -> list[ReceivedSpan]:
        return wait_until(lambda: len(found := self.find_all(name)) >= count and found)

    @contextmanager
    def exporting(self, service: str = "retoma-worker", **variables: str) -> Iterator[None]:
        """Let this process export its traces. They have arrived when the block has ended."""
        with patch.dict(os.environ, self.variables | variables), TRACES.exporting(service):
            yield


@contextmanager
def collector() -> Iterator[Collector]:
    made = Collector()
    made.opened.set()

    class Handler(BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            body = self.rfile.read(int(self.headers["content-length"]))
            made.requested.set()
            made.opened.wait(60)
            if made.status == 200:
                made.headers.append({name.lower(): value for name, value in self.headers.items()})
                made.bodies.append(gzip.decompress(body) if self.headers["content-encoding"] == "gzip" else body)
            self.send_response(made.status)
            self.send_header("content-length", "0")
            self.end_headers()

        def log_message(self, *_: object) -> None: ...

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    server.daemon_threads = True
    made.url = f"http://127.0.0.1:{server.server_port}"
    thread = threading.Thread(target=server.serve_forever, args=(0.05,))
    thread.start()
    try:
        yield made
    finally:
        made.opened.set()
        server.shutdown()
        thread.join()
        server.server_close()


def _parse(body: bytes) -> Iterator[ReceivedSpan]:
    for resource in ExportTraceServiceRequest.FromString(body).resource_spans:
        service = _read_attributes(resource.resource.attributes)["service.name"]
        for scope in resource.scope_spans:
            for span in scope.spans:
                yield _read_span(span, service)


def _read_span(span: WireSpan, service: str) -> ReceivedSpan:
    return ReceivedSpan(
        name=span.name,
        trace=UUID(bytes=span.trace_id),
        id=span.span_id.hex(),
        parent=span.parent_span_id.hex(),
        kind=WireSpan.SpanKind.Name(span.kind).removeprefix("SPAN_KIND_").lower(),
        seconds=(span.end_time_unix_nano - span.start_time_unix_nano) / 1e9,
        error=span.status.message if span.status.code == Status.STATUS_CODE_ERROR else None,
        attributes=_read_attributes(span.attributes),
        links=tuple((UUID(bytes=link.trace_id), link.span_id.hex()) for link in span.links),
        service=service,
    )


def _read_attributes(attributes: Any) -> dict[str, Any]:
    return {each.key: getattr(each.value, each.value.WhichOneof("value")) for each in attributes}
