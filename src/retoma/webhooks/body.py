"""The bodies of webhooks."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from dataclasses import replace
from datetime import datetime
from inspect import isawaitable
from typing import Any
from uuid import UUID

from pydantic_core import to_jsonable_python

from retoma.client import Client
from retoma.define.file import File, find_files
from retoma.define.webhook import REVIEW_OPENED, STARTED, STUCK
from retoma.engine.guarded_calls import call_application
from retoma.file_links import build_url
from retoma.records import Review, Run
from retoma.states import RunState
from retoma.store import deliveries, runs
from retoma.store.deliveries import ClaimedDelivery

MAX_BODY_BYTES = 20_000
BODY_TIMEOUT = 15.0  # seconds for the application to build a body; with the time to send it, less than a sender's lease
# Of stored results: a character may take six bytes there, but one byte in a body.
MAX_RESULT_BYTES = 6 * MAX_BODY_BYTES
REVIEW_FIELDS = (
    *("id", "step", "item", "revision", "planned", "reason", "assignee", "opened_at", "due_at"),
    "rejection_ends_run",
)
OMISSION_ORDER = ("results", "input", "review.files", "review.reason", "stuck.details", "error")
"""The parts to omit from a body, one after the other, until it is small enough."""


async def build_body(client: Client, delivery: ClaimedDelivery, public_url: str | None) -> str:
    """Return the body for this event: the application's own, or the standard one. It is signed and sent unchanged."""
    data = (
        await deliveries.get_event_data(client.database, delivery.id)
        if delivery.event in (STUCK, REVIEW_OPENED)
        else {}
    )
    review = await client.reviews.get(UUID(data["review"])) if delivery.event == REVIEW_OPENED else None
    run = await _load_run_at_event(client, delivery, review)
    application = client.app.find_owner(run.pipeline) if client.app else None
    if application is not None and (build := application.webhook_body) is not None:
        scoped = client.scope_to(application)
        body = await call_application(lambda: _call_application(build, scoped, run, delivery.event), BODY_TIMEOUT)
        if body is not None:
            return body
    return await _build_standard_body(client, run, delivery, public_url, review, data)


async def _call_application(build: Callable[..., Any], client: Client, run: Run, event: str) -> str | None:
    built = build(client, run, event)
    body = await built if isawaitable(built) else built
    return None if body is None else _to_json(body)


async def _load_run_at_event(client: Client, delivery: ClaimedDelivery, review: Review | None) -> Run:
    """Return the run as it was at the event: it may have been rerun since."""
    run = await client.runs.get(delivery.run)
    if delivery.event == STARTED:
        return replace(run, state=RunState.RUNNING, revision=1, ended_at=None)
    if review is not None:
        waiting = RunState.PAUSED if review.planned else RunState.NEEDS_REVIEW
        return replace(run, state=waiting, revision=review.revision, ended_at=None)
    state = RunState(delivery.event.removeprefix("run."))
    if delivery.event == STUCK:
        return replace(run, state=state, ended_at=None)
    ended = (delivery.created_at, state)
    ends = [end for end in await client.runs.list_events(run.id, kinds=["end"]) if (end.at, end.data["state"]) == ended]
    return replace(run, state=state, revision=ends[-1].revision, ended_at=delivery.created_at)


async def _build_standard_body(
    client: Client,
    run: Run,
    delivery: ClaimedDelivery,
    public_url: str | None,
    review: Review | None,
    data: dict[str, Any],
) -> str:
    """Return the standard body. It always has the same fields: omitted ones are null, and listed in `omitted`."""
    results, is_too_large = await _load_results(client, run)
    failed = run.state is RunState.FAILED
    full: dict[str, Any] = {
        "run": run.id,
        "title": run.title,
        "tenant": run.tenant,
        "pipeline": run.pipeline,
        "state": run.state,
        "seq": delivery.seq,
        "url": build_url(public_url, f"/api/v1/runs/{run.id}"),
        "input": run.input,
        "results": results,
        "error": await runs.get_last_failure(client.database, run.id, run.revision) or None if failed else None,
        "review": None if review is None else await _build_review(client, review, public_url),
        "stuck": _build_stuck(data) if delivery.event == STUCK else None,
        "omitted": ["results"] if is_too_large else [],
    }
    for smaller in _shrink(full):
        text = _to_json({"type": delivery.event, "timestamp": _format_time(delivery.created_at), "data": smaller})
        if len(text.encode()) <= MAX_BODY_BYTES:
            break
    return text


def _shrink(full: dict[str, Any]) -> Iterator[dict[str, Any]]:
    yield full
    for path in OMISSION_ORDER:
        outer, _, inner = path.partition(".")
        value = full[outer]
        if value is None or (inner and value[inner] is None):
            continue
        left = {**value, inner: None} if inner else None
        full = full | {outer: left, "omitted": [*full["omitted"], path]}
        yield full


async def _load_results(client: Client, run: Run) -> tuple[dict[str, Any] | None, bool]:
    """Return the results, or None if there are none yet or they are too large, and whether they are too large."""
    if not run.is_over:
        return None, False
    if await runs.measure_results(client.database, run.id, run.revision) > MAX_RESULT_BYTES:
        return None, True
    return await client.runs.get_results(run.id, revision=run.revision), False


async def _build_review(client: Client, review: Review, public_url: str | None) -> dict[str, Any]:
    """Return what a person needs to decide elsewhere: the URL of its page, and links to its files that need no key."""
    files = await _list_files(client, review)
    query = await client.files.sign_links(review.run)
    return {
        **{name: getattr(review, name) for name in REVIEW_FIELDS},
        "review_url": build_url(public_url, f"/reviews/{review.id}"),
        "files": [
            {
                "step": step,
                "name": file.name,
                "media_type": file.media_type,
                "size": file.size,
                "url": build_url(public_url, f"/api/v1/runs/{review.run}/files/{file.file}{query(file)}"),
            }
            for file, step in files.items()
        ],
    }


async def _list_files(client: Client, review: Review) -> dict[File, str]:
    """Return the files under review, each with the step that created it."""
    subjects = await client.reviews.get_subjects(review)
    return {file: subject.step for subject in subjects.values() for file in find_files(subject.value)}


def _build_stuck(data: dict[str, Any]) -> dict[str, Any]:
    return {name: data.get(name) for name in ("cause", "explanation", "step", "item")} | {"details": data}


def _to_json(body: Any) -> str:
    return json.dumps(to_jsonable_python(body), ensure_ascii=False, separators=(",", ":"))


def _format_time(at: datetime) -> str:
    return at.isoformat().replace("+00:00", "Z")
