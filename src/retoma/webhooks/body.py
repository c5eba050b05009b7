"""What a webhook says."""

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
from retoma.define.file import File, files_in
from retoma.define.webhook import REVIEW_OPENED, STARTED, STUCK
from retoma.engine.contained import call_contained
from retoma.links import absolute
from retoma.records import Review, Run
from retoma.states import RunState
from retoma.store import deliveries, runs
from retoma.store.deliveries import Taken

LARGEST = 20_000
PATIENCE = 15.0  # seconds for the application to make a body: with the time to send it, less than a sender's lease
MOST_READ = 6 * LARGEST  # bytes of results: a letter may be written as six in what is stored, and as one in a body
LEFT_OUT = ("results", "input", "review.files", "review.reason", "stuck.details", "error")
"""What a body goes without if it would be too large, until it is not."""


async def body_of(client: Client, taken: Taken, public_url: str | None) -> str:
    """The body for this event: the application's own, or ours. It is JSON, and is signed and sent as it is here."""
    data = await deliveries.event_data(client.database, taken.id) if taken.event in (STUCK, REVIEW_OPENED) else {}
    review = await client.review(UUID(data["review"])) if taken.event == REVIEW_OPENED else None
    run = await _at_its_event(client, taken, review)
    if client.app is not None and (make := client.app.webhook_body) is not None:
        body = await call_contained(lambda: _own(make, client, run, taken.event), PATIENCE)
        if body is not None:
            return body
    return await _standard(client, run, taken, public_url, review, data)


async def _own(make: Callable[..., Any], client: Client, run: Run, event: str) -> str | None:
    made = make(client, run, event)
    body = await made if isawaitable(made) else made
    return None if body is None else _text(body)


async def _at_its_event(client: Client, taken: Taken, review: Review | None) -> Run:
    """The run as it was when this was owed: it may have been made anew since."""
    run = await client.show(taken.run)
    if taken.event == STARTED:
        return replace(run, state=RunState.RUNNING, revision=1, ended_at=None)
    if review is not None:
        asked = RunState.PAUSED if review.planned else RunState.NEEDS_REVIEW
        return replace(run, state=asked, revision=review.revision, ended_at=None)
    state = RunState(taken.event.removeprefix("run."))
    if taken.event == STUCK:
        return replace(run, state=state, ended_at=None)
    told = (taken.created_at, state)
    ends = [end for end in await client.events(run.id, kinds=["end"]) if (end.at, end.data["state"]) == told]
    return replace(run, state=state, revision=ends[-1].revision, ended_at=taken.created_at)


async def _standard(
    client: Client, run: Run, taken: Taken, public_url: str | None, review: Review | None, data: dict[str, Any]
) -> str:
    """The same fields whatever its size and event: what was left out is null, and named in `omitted`."""
    results, is_too_large = await _results(client, run)
    failed = run.state is RunState.FAILED
    full: dict[str, Any] = {
        "run": run.id,
        "tenant": run.tenant,
        "pipeline": run.pipeline,
        "state": run.state,
        "seq": taken.seq,
        "url": absolute(public_url, f"/api/v1/runs/{run.id}"),
        "input": run.input,
        "results": results,
        "error": await runs.last_failure(client.database, run.id, run.revision) or None if failed else None,
        "review": None if review is None else await _review(client, review, public_url),
        "stuck": _stuck(data) if taken.event == STUCK else None,
        "omitted": ["results"] if is_too_large else [],
    }
    for smaller in _ever_smaller(full):
        text = _text({"type": taken.event, "timestamp": _moment(taken.created_at), "data": smaller})
        if len(text.encode()) <= LARGEST:
            break
    return text


def _ever_smaller(full: dict[str, Any]) -> Iterator[dict[str, Any]]:
    yield full
    for path in LEFT_OUT:
        outer, _, inner = path.partition(".")
        value = full[outer]
        if value is None or (inner and value[inner] is None):
            continue
        left = {**value, inner: None} if inner else None
        full = full | {outer: left, "omitted": [*full["omitted"], path]}
        yield full


async def _results(client: Client, run: Run) -> tuple[dict[str, Any] | None, bool]:
    """None while there are none, or if they are too large, which is the second."""
    if not run.is_over:
        return None, False
    if await runs.size_of_results(client.database, run.id, run.revision) > MOST_READ:
        return None, True
    return await client.results(run.id, revision=run.revision), False


async def _review(client: Client, review: Review, public_url: str | None) -> dict[str, Any]:
    """What a person needs to decide it elsewhere: where its page is, and its files by links that need no key."""
    files = await _files(client, review)
    query = await client.sign_file_links(review.run)
    return {
        "id": review.id,
        "step": review.step,
        "item": review.item,
        "revision": review.revision,
        "planned": review.planned,
        "reason": review.reason,
        "assignee": review.assignee,
        "opened_at": review.opened_at,
        "due_at": review.due_at,
        "review_url": absolute(public_url, f"/reviews/{review.id}"),
        "files": [
            {
                "step": step,
                "name": file.name,
                "media_type": file.media_type,
                "size": file.size,
                "url": absolute(public_url, f"/api/v1/runs/{review.run}/files/{file.file}{query(file)}"),
            }
            for file, step in files.items()
        ],
    }


async def _files(client: Client, review: Review) -> dict[File, str]:
    """The files that a person is asked about, each with the step that made it."""
    subjects = await client.subjects(review)
    return {file: subject.step for subject in subjects.values() for file in files_in(subject.value)}


def _stuck(data: dict[str, Any]) -> dict[str, Any]:
    return {
        "cause": data.get("cause"),
        "why": data.get("why"),
        "step": data.get("step"),
        "item": data.get("item"),
        "details": data,
    }


def _text(body: Any) -> str:
    return json.dumps(to_jsonable_python(body), ensure_ascii=False, separators=(",", ":"))


def _moment(at: datetime) -> str:
    return at.isoformat().replace("+00:00", "Z")
