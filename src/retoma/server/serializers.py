"""Convert runs to API schemas."""

from __future__ import annotations

from typing import Any

from retoma.define.graph import Graph
from retoma.masking import drop_stack
from retoma.records import Review, Run, StepProgress, Wait
from retoma.server.principal import Principal
from retoma.server.schemas import (
    ErrorCountsSchema,
    ErrorSchema,
    OpenReview,
    RunDetails,
    RunSchema,
    StepSchema,
    WaitSchema,
)
from retoma.states import JOB_FINAL_STATES

MAX_ERRORS = 100
MAX_REVIEWS = 100


def serialize_run(run: Run) -> RunSchema:
    return RunSchema(**{name: getattr(run, name) for name in RunSchema.model_fields})


def redact_stacks(by: Principal, data: Any) -> Any:
    """Return the data of an event, without stack traces unless the principal may see them."""
    return data if by.sees_stacks else drop_stack(data)


async def serialize_run_details(by: Principal, run: Run) -> RunDetails:
    client = by.client
    graph = await client.runs.get_graph(run)
    progress = {step.step: step for step in await client.runs.get_progress(run.id)}
    errors = await client.runs.get_errors(run.id, limit=MAX_ERRORS, with_stack=by.sees_stacks)
    return RunDetails(
        **serialize_run(run).model_dump(),
        input=run.input,
        forked_from=run.forked_from,
        reviews=[]
        if run.is_over
        else [_serialize_open_review(one) for one in await client.reviews.list(run=run.id, limit=MAX_REVIEWS)],
        steps=[
            _serialize_step(progress[each.name]) for each in graph.steps if not each.internal and each.name in progress
        ],
        estimated_end_at=None if run.is_over else await client.runs.estimate_end(run.id),
        waits=[] if run.is_over else [_serialize_wait(wait) for wait in await client.runs.list_waits(run.id)],
        errors=[ErrorSchema(**{**error, "step": step, "item": item}) for (step, item), error in errors.items()],
        error_counts=ErrorCountsSchema(**vars(await client.runs.get_error_counts(run.id))),
    )


def list_item_sources(graph: Graph) -> list[str]:
    """Return the steps that produce the items of `each` steps."""
    found = (step.source for step in graph.steps if step.each and not step.internal)
    return list(dict.fromkeys(name for name in found if name))


def _serialize_open_review(review: Review) -> OpenReview:
    return OpenReview(**{name: getattr(review, name) for name in OpenReview.model_fields})


def _serialize_step(step: StepProgress) -> StepSchema:
    return StepSchema(
        step=step.step,
        each=step.each,
        queue=step.queue,
        jobs={str(state): count for state, count in step.jobs.items()},
        ended=sum(count for state, count in step.jobs.items() if state in JOB_FINAL_STATES),
        total=step.total,
        started_at=step.started_at,
        ended_at=step.ended_at,
    )


def _serialize_wait(wait: Wait) -> WaitSchema:
    return WaitSchema(
        step=wait.step,
        item=wait.item,
        jobs=wait.jobs,
        reason=wait.reason,
        explanation=wait.explanation,
        until=wait.until,
    )
