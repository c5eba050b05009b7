"""The span of the start of a run: the root of its trace begins there, and is recorded by another process later."""

from __future__ import annotations

import time
from collections.abc import Sequence

from retoma.define.pipeline import Pipeline
from retoma.engine.run_starter import StartedRun
from retoma.trace_context import CURRENT_SPAN, LiveSpan, SpanContext, derive_span_id, get_run_span_id
from retoma.tracing import TRACES, Span

MAX_LINKS = 128  # of one span: a request may start thousands of runs


def record_starts(runs: Sequence[StartedRun], pipeline: Pipeline | str, tenant: str, started_at: int) -> None:
    """Record the start of new runs, and link them with the request or attempt that started them, both ways."""
    cause = CURRENT_SPAN.get()
    name = pipeline if isinstance(pipeline, str) else pipeline.name
    for run in runs:
        if cause is not None:
            _link_run(cause, run)
        if run.created:
            context = TRACES.get_context(run.id.int, derive_span_id("start"))
            TRACES.record(
                Span(
                    name=f"start {name}",
                    context=context,
                    parent=context._replace(span_id=get_run_span_id()),
                    started_at=started_at,
                    ended_at=time.time_ns(),
                    attributes={"retoma.run": str(run.id), "retoma.pipeline": name, "retoma.tenant": tenant},
                    kind="producer",
                    links=() if cause is None else [cause.context],
                )
            )


def _link_run(cause: LiveSpan, run: StartedRun) -> None:
    if len(cause.links) < MAX_LINKS:
        cause.links.append(SpanContext(run.id.int, get_run_span_id()))
