"""A span as Retoma records it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from typing import Literal

from retoma.trace_context import SpanContext

SpanKind = Literal["internal", "server", "client", "producer"]
AttributeValue = str | int | float | bool | None
_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)


@dataclass(frozen=True, slots=True)
class Span:
    """A span that has ended. Times are in nanoseconds since 1970. Attributes that are None are left out.

    `error` is set if it failed, and says what happened, masked as in logs.
    """

    name: str
    context: SpanContext
    parent: SpanContext | None
    started_at: int
    ended_at: int
    attributes: Mapping[str, AttributeValue] = field(default_factory=dict)
    kind: SpanKind = "internal"
    error: str | None = None
    links: Sequence[SpanContext] = ()


def to_nanoseconds(at: datetime) -> int:
    return (at - _EPOCH) // timedelta(microseconds=1) * 1_000
