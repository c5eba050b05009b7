"""Have parts of a run made anew, or make a run like it with another input."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from pydantic import ValidationError
from starlette.responses import Response

from retoma.errors import InvalidInput
from retoma.server.pages import run as run_page
from retoma.server.pages import typed
from retoma.server.pages.page import Page
from retoma.server.pages.visit import Visit

LONGEST_WHY = 2_000


async def rerun(visit: Visit) -> Response:
    run, step, item = visit.id("run"), visit.asked.get("step", ""), visit.asked.get("item", "")
    why = visit.fields.get("why", "").strip()[:LONGEST_WHY] or None
    steps, options = _chosen(visit, step)
    items = [item] if item and steps else None
    made = await visit.client.rerun(run, *steps, items=items, by=visit.by, key=visit.key, why=why, **options)
    return visit.go(f"/runs/{run}", "anew" if made.jobs else "nothing_anew", step=step, item=item)


async def fork(visit: Visit) -> Response:
    """What the pipeline's input refuses comes back in the form, as it was typed."""
    run = await visit.client.show(visit.id("run"))
    fields = run_page.input_fields(visit, run)
    value, wrong = typed.read(fields, visit.fields)
    said = visit.say_wrong(wrong)
    if not said:
        try:
            forked = await visit.client.fork(run.id, value, by=visit.by, key=visit.key)
            return visit.go(f"/runs/{forked.id}", "forked")
        except InvalidInput as error:
            said = _complaints(visit, fields, error)
    return await run_page.show(visit, 422, fork=typed.filled(fields, visit.fields, said))


def _complaints(visit: Visit, fields: list[typed.Field], error: InvalidInput) -> dict[str, str]:
    """Each at its field; what belongs to none at the first."""
    if not isinstance(error.__cause__, ValidationError):
        return {fields[0].name: str(error)} if fields else {}
    found = typed.complaints(fields, visit.fields, error.__cause__)
    return visit.say_wrong(found) or {fields[0].name: str(error)}


def _chosen(visit: Visit, step: str) -> tuple[list[str], Mapping[str, Any]]:
    what = visit.fields.get("what", "")
    match what.partition(":"):
        case ("stale", _, _):
            return [], {"stale": True}
        case ("group", _, name):
            return [], {"group": name}
        case ("step", _, _):
            return [step], {}
        case ("alone", _, _):
            return [step], {"alone": True}
        case ("from", _, _):
            return [], {"after": step}
        case _:
            raise InvalidInput(visit.say("no act"))


PAGES = (
    Page("/runs/{run}/rerun", act=rerun),
    # Whoever reloads a form that bounced sees the run.
    Page("/runs/{run}/fork", run_page.show, fork),
)
