"""Runs, as the API shows them."""

from __future__ import annotations

from typing import Any

from retoma.define.graph import Graph
from retoma.masking import without_stack
from retoma.records import Review, Run, StepProgress, Wait
from retoma.server.callers import Caller
from retoma.server.shapes import ErrorCountsShape, ErrorShape, OpenReview, RunDetails, RunShape, StepShape, WaitShape
from retoma.states import JOB_ENDS

MOST_ERRORS = 100
MOST_REVIEWS = 100


def shape(run: Run) -> RunShape:
    return RunShape(**{name: getattr(run, name) for name in RunShape.model_fields})


def shown(by: Caller, said: Any) -> Any:
    """What an event says, as its caller may see it."""
    return said if by.sees_stacks else without_stack(said)


async def details(by: Caller, run: Run) -> RunDetails:
    client = by.client
    graph = await client.graph(run)
    progress = {step.step: step for step in await client.progress(run.id)}
    errors = await client.errors(run.id, limit=MOST_ERRORS, with_stack=by.sees_stacks)
    return RunDetails(
        **shape(run).model_dump(),
        input=run.input,
        forked_from=run.forked_from,
        reviews=[] if run.is_over else [_open(one) for one in await client.reviews(run=run.id, limit=MOST_REVIEWS)],
        steps=[_step(progress[each.name]) for each in graph.steps if not each.hidden and each.name in progress],
        estimated_end_at=None if run.is_over else await client.estimate(run.id),
        waits=[] if run.is_over else [_wait(wait) for wait in await client.waits(run.id)],
        errors=[ErrorShape(**{**error, "step": step, "item": item}) for (step, item), error in errors.items()],
        error_counts=ErrorCountsShape(**vars(await client.error_counts(run.id))),
    )


def sources(graph: Graph) -> list[str]:
    """The steps whose results are lists of items that other steps go over."""
    found = (step.source for step in graph.steps if step.each and not step.hidden)
    return list(dict.fromkeys(name for name in found if name))


def _open(review: Review) -> OpenReview:
    return OpenReview(**{name: getattr(review, name) for name in OpenReview.model_fields})


def _step(step: StepProgress) -> StepShape:
    return StepShape(
        step=step.step,
        each=step.each,
        queue=step.queue,
        jobs={str(state): count for state, count in step.jobs.items()},
        ended=sum(count for state, count in step.jobs.items() if state in JOB_ENDS),
        total=step.total,
        started_at=step.started_at,
        ended_at=step.ended_at,
    )


def _wait(wait: Wait) -> WaitShape:
    return WaitShape(step=wait.step, item=wait.item, jobs=wait.jobs, reason=wait.reason, why=wait.why, until=wait.until)
