"""Build the responses that consist of several records."""

from __future__ import annotations

from dataclasses import replace
from typing import Any, TypeVar

from retoma.define.graph import Graph
from retoma.masking import drop_stack
from retoma.outgoing import mask_query_values
from retoma.records import Delivery, Endpoint, Run, Subscription
from retoma.server.principal import Principal
from retoma.server.schemas import OpenReview, RunDetails, RunError, StepStatus, Wait

_HasUrl = TypeVar("_HasUrl", bound=Delivery | Endpoint | Subscription)
MAX_ERRORS = 100
MAX_REVIEWS = 100


def redact_stacks(by: Principal, data: Any) -> Any:
    """Return the data of an event, without stack traces unless the principal may see them."""
    return data if by.sees_stacks else drop_stack(data)


def mask_url(record: _HasUrl) -> _HasUrl:
    """Return the record with a URL whose query values, which may be secret, are masked."""
    return replace(record, url=mask_query_values(record.url))


async def get_run_details(by: Principal, run: Run) -> RunDetails:
    runs = by.client.runs
    reviews = [] if run.is_over else await by.client.reviews.list(run=run.id, limit=MAX_REVIEWS)
    graph = await runs.get_graph(run)
    progress = {step.step: step for step in await runs.get_progress(run.id)}
    steps = [progress[each.name] for each in graph.steps if not each.internal and each.name in progress]
    waits = [] if run.is_over else await runs.list_waits(run.id)
    children = await runs.count_children(run.id)
    errors = await runs.get_errors(run.id, limit=MAX_ERRORS, with_stack=by.sees_stacks)
    return RunDetails(
        **vars(run),
        reviews=[OpenReview.model_validate(one) for one in reviews],
        steps=[StepStatus.model_validate(one) for one in steps],
        estimated_end_at=None if run.is_over else await runs.estimate_end(run.id),
        children={str(state): count for state, count in children.items()},
        waits=[Wait.model_validate(one) for one in waits],
        errors=[RunError(**{**error, "step": step, "item": item}) for (step, item), error in errors.items()],
        error_counts=await runs.get_error_counts(run.id),
        orphans=await runs.list_orphans(run.id),
    )


def list_item_sources(graph: Graph) -> list[str]:
    """Return the steps that produce the items of `each` steps."""
    found = (step.source for step in graph.steps if step.each and not step.internal)
    return list(dict.fromkeys(name for name in found if name))
