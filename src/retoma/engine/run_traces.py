"""Traces of runs: once a run has ended, one process records what no worker or server can record alone.

That is the run itself, its reviews, and the attempts of workers that died.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager
from functools import partial

from retoma.engine.background_loops import run_in_background, run_with_restarts
from retoma.errors import DatabaseUnavailable
from retoma.logs import get_logger
from retoma.states import RunState
from retoma.store import traces
from retoma.store.database import Database
from retoma.store.traces import EndedReview, EndedRun, LostAttempt, RunFacts
from retoma.trace_context import SpanContext, derive_span_id, get_attempt_span_id, get_run_span_id
from retoma.tracing import TRACES, Span, to_nanoseconds

log = get_logger(__name__)
SECONDS_BETWEEN_READS = 1.0
RUNS_PER_READ = 200


@asynccontextmanager
async def run_tracing(database: Database) -> AsyncIterator[None]:
    """Record the spans of ended runs while the block runs, if this process exports traces."""
    if not TRACES.is_on:
        yield
        return
    async with run_in_background(run_with_restarts("run_traces", partial(trace_ended_runs_forever, database))):
        yield


async def trace_ended_runs_forever(database: Database) -> None:
    """Record the spans of runs soon after they end, until cancelled. Any number of processes may do so."""
    while True:
        try:
            found = await trace_ended_runs(database)
        except DatabaseUnavailable as error:
            found = 0
            log.warning("run_traces_delayed", message="could not read which runs ended; retrying", error=error)
        if found < RUNS_PER_READ:
            await asyncio.sleep(SECONDS_BETWEEN_READS)


async def trace_ended_runs(database: Database) -> int:
    """Record the spans of runs that have ended and were not traced before. Return how many it found."""
    ended = await traces.take_ended_runs(database, RUNS_PER_READ)
    for end in ended:
        if TRACES.get_context(end.run.int, get_run_span_id()).is_sampled:
            await _trace_run(database, end)
    return len(ended)


async def _trace_run(database: Database, ended: EndedRun) -> None:
    run = await traces.find_run(database, ended.run)
    if run is None:
        return
    for revision, began_at in (await traces.list_revisions(database, ended)).items():
        start = to_nanoseconds(run.run_at if revision == 1 else began_at)
        TRACES.record(_build_revision_span(ended, run, revision, start))
    for review in await traces.list_reviews(database, ended):
        TRACES.record(_build_review_span(ended, run, review))
    for attempt in await traces.list_lost_attempts(database, ended):
        TRACES.record(_build_lost_attempt_span(ended, run, attempt))


def _build_revision_span(ended: EndedRun, run: RunFacts, revision: int, start: int) -> Span:
    """Return the span of a revision. That of the first is the root of the trace, and the parent of the others."""
    is_first = revision == 1
    return Span(
        name=f"run {run.pipeline}" if is_first else f"revision {run.pipeline}",
        context=_get_context(ended, get_run_span_id(revision)),
        parent=None if is_first else _get_context(ended, get_run_span_id()),
        started_at=start,
        ended_at=to_nanoseconds(ended.at),
        attributes={
            "retoma.run": str(ended.run),
            "retoma.pipeline": run.pipeline,
            "retoma.tenant": run.tenant,
            "retoma.revision": revision,
            "retoma.state": ended.state,
            "error.type": "RunFailed" if ended.state == RunState.FAILED else None,
        },
        error="the run failed" if ended.state == RunState.FAILED else None,
        links=[*_link_runs(run)] if is_first else (),
    )


def _link_runs(run: RunFacts) -> Iterator[SpanContext]:
    """Yield the spans of the run that started this one as its child, and of the run that it was forked from."""
    if run.parent is not None:
        yield SpanContext(run.parent.int, get_run_span_id(run.parent_revision or 1))
    if run.forked_from is not None:
        yield SpanContext(run.forked_from.int, get_run_span_id())


def _build_review_span(ended: EndedRun, run: RunFacts, review: EndedReview) -> Span:
    return Span(
        name=f"review {review.step}",
        context=_get_context(ended, derive_span_id("review", review.step, review.item, review.revision)),
        parent=_get_context(ended, get_run_span_id(review.revision)),
        started_at=to_nanoseconds(review.opened_at),
        ended_at=to_nanoseconds(review.ended_at),
        attributes={
            "retoma.run": str(ended.run),
            "retoma.pipeline": run.pipeline,
            "retoma.tenant": run.tenant,
            "retoma.step": review.step,
            "retoma.item": review.item or None,
            "retoma.revision": review.revision,
            "retoma.state": review.state,
            "retoma.planned": review.planned,
        },
    )


def _build_lost_attempt_span(ended: EndedRun, run: RunFacts, lost: LostAttempt) -> Span:
    return Span(
        name=f"attempt {lost.step}",
        context=_get_context(ended, get_attempt_span_id(lost.step, lost.item, lost.revision, lost.fence)),
        parent=_get_context(ended, get_run_span_id(lost.revision)),
        started_at=to_nanoseconds(lost.started_at),
        ended_at=to_nanoseconds(lost.at),
        attributes={
            "retoma.run": str(ended.run),
            "retoma.pipeline": run.pipeline,
            "retoma.tenant": run.tenant,
            "retoma.step": lost.step,
            "retoma.item": lost.item or None,
            "retoma.revision": lost.revision,
            "retoma.attempt": lost.attempt,
            "retoma.worker": lost.worker,
            "retoma.state": "lost",
            "error.type": lost.code,
        },
        error=lost.message,
    )


def _get_context(ended: EndedRun, span_id: int) -> SpanContext:
    return SpanContext(ended.run.int, span_id)
