"""What a person puts right in a run: a result of their own, an item left out."""

from __future__ import annotations

from pydantic import ValidationError
from starlette.responses import Response

from retoma.errors import AtWork, InvalidInput
from retoma.server.pages import run as run_page
from retoma.server.pages import typed
from retoma.server.pages.page import Page
from retoma.server.pages.visit import Visit

RESULT = typed.fields_of({})


async def edit(visit: Visit) -> Response:
    """What cannot be taken comes back in the form, as it was written."""
    run = visit.id("run")
    value, wrong = typed.read(RESULT, visit.fields)
    if wrong:
        return await _bounced(visit, 422, visit.say_wrong(wrong)[typed.NAME])
    try:
        await visit.client.edit(run, _step(visit), value, item=_item(visit), by=visit.by, key=visit.key)
    except InvalidInput as error:
        return await _bounced(visit, 422, _why(visit, error))
    except AtWork as error:
        return await _bounced(visit, 409, f"{visit.say('error 409')}: {error}.")
    return visit.go(f"/runs/{run}", "edited", step=_step(visit), item=_item(visit))


async def skip(visit: Visit) -> Response:
    run = visit.id("run")
    await visit.client.skip(run, _step(visit), [_item(visit)], by=visit.by, key=visit.key)
    return visit.go(f"/runs/{run}", "skipped", step=_step(visit), item=_item(visit))


async def _bounced(visit: Visit, status: int, wrong: str) -> Response:
    return await run_page.show(visit, status, run_page.Draft(visit.fields.get(typed.NAME, ""), wrong))


def _why(visit: Visit, error: InvalidInput) -> str:
    """What the type of the result says of it."""
    if not isinstance(error.__cause__, ValidationError):
        return str(error)
    return visit.say_wrong(typed.complaints(RESULT, visit.fields, error.__cause__))[typed.NAME]


def _step(visit: Visit) -> str:
    return visit.asked.get("step", "")


def _item(visit: Visit) -> str:
    return visit.asked.get("item", "")


# A form that bounces leaves its own address in the browser: whoever reloads it sees the run.
PAGES = (Page("/runs/{run}/edit", run_page.show, edit), Page("/runs/{run}/skip", act=skip))
