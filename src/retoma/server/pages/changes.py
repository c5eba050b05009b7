"""What a person puts right in a run that is over: a result of their own, an item left out."""

from __future__ import annotations

import json
from typing import Any

from starlette.responses import Response

from retoma.server.edge import check_json
from retoma.server.pages import run as run_page
from retoma.server.pages.page import Page
from retoma.server.pages.visit import Visit
from retoma.server.problems import Problem


async def edit(visit: Visit) -> Response:
    """What is no JSON comes back in the form, as it was written."""
    run, text = visit.id("run"), visit.fields.get("value", "")
    try:
        value = _read(text)
    except (ValueError, RecursionError) as error:
        return await run_page.show(visit, 422, run_page.Draft(text, _why(visit, error)))
    await visit.client.edit(run, _step(visit), value, item=_item(visit), by=visit.by)
    return visit.go(f"/runs/{run}", "edited", step=_step(visit), item=_item(visit))


async def skip(visit: Visit) -> Response:
    run = visit.id("run")
    await visit.client.skip(run, _step(visit), [_item(visit)], by=visit.by)
    return visit.go(f"/runs/{run}", "skipped", step=_step(visit), item=_item(visit))


def _read(text: str) -> Any:
    """Raise ValueError if it is no JSON, or nested too deeply to be one of ours."""
    try:
        check_json(text.encode())
    except Problem as error:
        raise ValueError(error.detail) from error
    return json.loads(text, parse_constant=_refused)


def _why(visit: Visit, error: Exception) -> str:
    if isinstance(error, json.JSONDecodeError):
        return visit.say("edit wrong at", line=error.lineno, column=error.colno)
    return visit.say("edit wrong")


def _refused(name: str) -> Any:
    raise ValueError(f"{name} is no JSON")


def _step(visit: Visit) -> str:
    return visit.asked.get("step", "")


def _item(visit: Visit) -> str:
    return visit.asked.get("item", "")


# A form that bounces leaves its own address in the browser: whoever reloads it sees the run.
PAGES = (Page("/runs/{run}/edit", run_page.show, edit), Page("/runs/{run}/skip", act=skip))
