"""Rerun parts of a run, or fork it with another input."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from pydantic import ValidationError
from starlette.responses import Response

from retoma.errors import InvalidInput
from retoma.server.pages import forms
from retoma.server.pages import run as run_page
from retoma.server.pages.page import Page
from retoma.server.pages.page_context import PageContext

MAX_REASON_LENGTH = 2_000


async def rerun_steps(context: PageContext) -> Response:
    run, step, item = context.get_path_id("run"), context.query.get("step", ""), context.query.get("item", "")
    why = context.fields.get("reason", "").strip()[:MAX_REASON_LENGTH] or None
    steps, options = _parse_selection(context, step)
    items = [item] if item and steps else None
    made = await context.client.runs.rerun(
        run, *steps, items=items, by=context.by, key=context.idempotency_key, reason=why, **options
    )
    return context.redirect(f"/runs/{run}", "rerun_started" if made.jobs else "nothing_to_rerun", step=step, item=item)


async def fork_run(context: PageContext) -> Response:
    """Fork the run. A rejected form is shown again as it was filled in."""
    run = await context.client.runs.get(context.get_path_id("run"))
    fields = run_page.build_input_fields(context, run)
    value, wrong = forms.parse_form(fields, context.fields)
    said = context.translate_errors(wrong)
    if not said:
        try:
            forked = await context.client.runs.fork(run.id, value, by=context.by, key=context.idempotency_key)
            return context.redirect(f"/runs/{forked.id}", "forked")
        except InvalidInput as error:
            said = _translate_validation_errors(context, fields, error)
    return await run_page.show_run(context, 422, rejected_fork=forms.fill_fields(fields, context.fields, said))


def _translate_validation_errors(
    context: PageContext, fields: list[forms.Field], error: InvalidInput
) -> dict[str, str]:
    """Return the messages by field; those that belong to no field go to the first."""
    if not isinstance(error.__cause__, ValidationError):
        return {fields[0].name: str(error)} if fields else {}
    found = forms.map_validation_errors(fields, context.fields, error.__cause__)
    return context.translate_errors(found) or {fields[0].name: str(error)}


def _parse_selection(context: PageContext, step: str) -> tuple[list[str], Mapping[str, Any]]:
    what = context.fields.get("what", "")
    match what.partition(":"):
        case ("stale", _, _):
            return [], {"stale": True}
        case ("group", _, name):
            return [], {"group": name}
        case ("step", _, _):
            return [step], {}
        case ("step_only", _, _):
            return [step], {"downstream": False}
        case ("downstream", _, _):
            return [], {"from_step": step}
        case _:
            raise InvalidInput(context.gettext("This form does not name an action."))


PAGES = (
    Page("/runs/{run}/rerun", submit=rerun_steps),
    # Reloading a rejected form shows the run.
    Page("/runs/{run}/fork", run_page.show_run, fork_run),
)
