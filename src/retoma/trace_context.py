"""Ids of traces and spans, the header `traceparent` of W3C Trace Context, and the span that the current code runs for.

The trace of a run has the run's id, and the ids of its spans follow from what they describe: every process knows the
parent of a span without asking.
"""

from __future__ import annotations

import re
import time
from contextvars import ContextVar
from dataclasses import dataclass, field
from hashlib import blake2b
from typing import Any, NamedTuple

MAX_CALLS = 100  # of one attempt: they are held back until it ends, because a charge may follow
_HEADER = re.compile(r"(?!ff)[0-9a-f]{2}-([0-9a-f]{32})-([0-9a-f]{16})-([0-9a-f]{2})(-.*)?")


class SpanContext(NamedTuple):
    """What identifies a span, and whether its trace is exported."""

    trace_id: int
    span_id: int
    is_sampled: bool = True

    @property
    def traceparent(self) -> str:
        return f"00-{self.trace_id:032x}-{self.span_id:016x}-{self.is_sampled:02x}"


def derive_span_id(kind: str, *parts: object) -> int:
    """Return the id of a span within its trace: the same parts have the same id, in every process."""
    text = "\0".join((kind, *map(str, parts)))
    return int.from_bytes(blake2b(text.encode(), digest_size=8).digest()) or 1  # 0 is not an id


def get_run_span_id(revision: int = 1) -> int:
    """Return the id of the span of a revision of a run. That of the first one is the root of the trace."""
    return derive_span_id("run", revision)


def get_attempt_span_id(step: str, item: str, revision: int, fence: int) -> int:
    return derive_span_id("attempt", step, item, revision, fence)


def parse_traceparent(header: str) -> SpanContext | None:
    """Return what the header names, or None if it is invalid."""
    found = _HEADER.fullmatch(header.strip())
    if found is None or (found[4] and header.startswith("00")):
        return None
    trace_id, span_id = int(found[1], 16), int(found[2], 16)
    return SpanContext(trace_id, span_id, bool(int(found[3], 16) & 1)) if trace_id and span_id else None


@dataclass(slots=True)
class HttpCall:
    """A request to another service. `attributes` are those of the charge for it."""

    method: str
    host: str
    port: int
    started_at: int = field(default_factory=time.time_ns)
    ended_at: int = 0
    status: int | None = None
    error: str | None = None
    attributes: dict[str, Any] = field(default_factory=dict)


@dataclass(slots=True)
class LiveSpan:
    """The attempt or request that the current code runs for. Times are in nanoseconds since 1970."""

    context: SpanContext
    started_at: int = field(default_factory=time.time_ns)
    ended_at: int = 0
    links: list[SpanContext] = field(default_factory=list)
    calls: list[HttpCall] = field(default_factory=list)

    def add_call(self, call: HttpCall) -> None:
        """Add a request that this attempt made. Those beyond MAX_CALLS are not traced."""
        if len(self.calls) < MAX_CALLS:
            self.calls.append(call)


CURRENT_SPAN: ContextVar[LiveSpan | None] = ContextVar("span", default=None)
LAST_CALL: ContextVar[HttpCall | None] = ContextVar("call", default=None)


def begin_call(method: str, host: str, port: int) -> HttpCall | None:
    """Start a request to another service, if it belongs to an attempt that is traced."""
    span = CURRENT_SPAN.get()
    if span is None:
        return None
    call = HttpCall(method, host, port)
    span.add_call(call)
    LAST_CALL.set(call)
    return call


def end_call(call: HttpCall, error: BaseException | None) -> None:
    call.ended_at = time.time_ns()
    if error is not None:
        call.error = type(error).__name__
    elif call.status is not None and call.status >= 400:
        call.error = str(call.status)
