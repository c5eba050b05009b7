"""What a webhook says."""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import replace
from datetime import datetime
from inspect import isawaitable
from typing import Any

from pydantic_core import to_jsonable_python

from retoma.client import Client
from retoma.define.webhook import STARTED
from retoma.engine.contained import call_contained
from retoma.records import Run
from retoma.states import RunState
from retoma.store import runs
from retoma.store.deliveries import Taken

LARGEST = 20_000
PATIENCE = 15.0  # seconds for the application to make a body: with the time to send it, less than a sender's lease
MOST_READ = 6 * LARGEST  # bytes of results: a letter may be written as six in what is stored, and as one in a body


async def body_of(client: Client, taken: Taken, public_url: str | None) -> str:
    """The body for this event: the application's own, or ours. It is JSON, and is signed and sent as it is here."""
    run = await _at_its_event(client, taken)
    if client.app is not None and (make := client.app.webhook_body) is not None:
        return await call_contained(lambda: _own(make, client, run, taken.event), PATIENCE)
    return await _standard(client, run, taken, public_url)


async def _own(make: Callable[..., Any], client: Client, run: Run, event: str) -> str:
    made = make(client, run, event)
    return _text(await made if isawaitable(made) else made)


async def _at_its_event(client: Client, taken: Taken) -> Run:
    """The run as it was when this was owed: it may have been made anew since."""
    run = await client.show(taken.run)
    if taken.event == STARTED:
        return replace(run, state=RunState.RUNNING, revision=1, ended_at=None)
    state = RunState(taken.event.removeprefix("run."))
    told = (taken.created_at, state)
    ends = [end for end in await client.events(run.id, kinds=["end"]) if (end.at, end.data["state"]) == told]
    return replace(run, state=state, revision=ends[-1].revision, ended_at=taken.created_at)


async def _standard(client: Client, run: Run, taken: Taken, public_url: str | None) -> str:
    """Without the results, and then without the input, if it would be too large: the run's URL has them."""
    results = await _results(client, run)
    data: dict[str, Any] = {
        "run": run.id,
        "tenant": run.tenant,
        "pipeline": run.pipeline,
        "state": run.state,
        "seq": taken.seq,
    }
    if run.state is RunState.FAILED:
        data["error"] = await runs.last_failure(client.database, run.id, run.revision) or None
    if public_url:
        data["url"] = f"{public_url.rstrip('/')}/api/v1/runs/{run.id}"
    full = {**data, "input": run.input} | ({} if results is None else {"results": results})
    for told in (full, {name: full[name] for name in full if name != "results"}, data):
        text = _text({"type": taken.event, "timestamp": _moment(taken.created_at), "data": told})
        if len(text.encode()) <= LARGEST:
            break
    return text


async def _results(client: Client, run: Run) -> dict[str, Any] | None:
    """None while there are none, or if they are too large."""
    if not run.is_over or await runs.size_of_results(client.database, run.id, run.revision) > MOST_READ:
        return None
    return await client.results(run.id, revision=run.revision)


def _text(body: Any) -> str:
    return json.dumps(to_jsonable_python(body), ensure_ascii=False, separators=(",", ":"))


def _moment(at: datetime) -> str:
    return at.isoformat().replace("+00:00", "Z")
