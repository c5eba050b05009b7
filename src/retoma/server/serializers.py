"""Build the responses that consist of several records."""

from __future__ import annotations

from dataclasses import replace
from typing import Any, TypeVar

import msgspec
from starlette.responses import Response

from retoma.define.graph import Graph
from retoma.engine import run_starter
from retoma.masking import drop_stack
from retoma.outgoing import mask_query_values
from retoma.records import Delivery, Endpoint, Run, Subscription
from retoma.server.principal import Principal
from retoma.server.schemas import OpenReview, RunDetails, RunError, StartedRun, StepStatus, Wait

_HasUrl = TypeVar("_HasUrl", bound=Delivery | Endpoint | Subscription)
MAX_ERRORS = 100
MAX_REVIEWS = 100
_LOCATION = {"Location": {"description": "The URL of the run.", "schema": {"type": "string"}}}
_KEY_USED = "The key was used before: this is the existing run."
STARTED_RESPONSES: dict[int | str, dict[str, Any]] = {
    202: {"description": "The run is committed.", "headers": _LOCATION},
    200: {"description": _KEY_USED, "model": StartedRun, "headers": _LOCATION},
}
"""The responses of `to_started_response`, as the OpenAPI document describes them."""


def to_started_response(started: run_starter.StartedRun) -> Response:
    body = msgspec.json.encode({"id": started.id, "created": started.created})
    headers = {"Location": f"/api/v1/runs/{started.id}"}
    return Response(body, 202 if started.created else 200, headers, "application/json")


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
