"""Rerun parts of a run, or fork it with another input."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from starlette.responses import Response

from retoma.errors import InvalidInput
from retoma.server.pages import forms
from retoma.server.pages import run as run_page
from retoma.server.pages.page import Page
from retoma.server.pages.page_context import PageContext

MAX_REASON_LENGTH = 2_000


async def rerun_steps(context: PageContext) -> Response:
    run, item = context.get_path_id("run"), context.query.get("item", "")
    step = context.query.get("step") or context.fields.get("step", "")
    why = context.fields.get("reason", "").strip()[:MAX_REASON_LENGTH] or None
    steps, options = _parse_selection(context, step)
    items = [item] if item and steps else None
    revision = await context.client.runs.rerun(
        run, *steps, items=items, by=context.by, key=context.idempotency_key, reason=why, **options
    )
    return context.redirect(
        f"/runs/{run}", "rerun_started" if revision.jobs else "nothing_to_rerun", step=step, item=item
    )


async def fork_run(context: PageContext) -> Response:
    """Fork the run. A rejected form is shown again as it was filled in."""
    run = await context.client.runs.get(context.get_path_id("run"))
    fields = run_page.build_input_fields(context, run)
    value, errors = forms.parse_form(fields, context.fields)
    messages = context.translate_errors(errors)
    if not messages:
        try:
            forked = await context.client.runs.fork(run.id, value, by=context.by, key=context.idempotency_key)
            return context.redirect(f"/runs/{forked.id}", "forked")
        except InvalidInput as error:
            found = context.translate_validation_errors(fields, error)
            messages = found or {each.name: str(error) for each in fields[:1]}
    return await run_page.show_run(context, 422, rejected_fork=forms.fill_fields(fields, context.fields, messages))


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
    Page("/runs/{run}/rerun", submit=rerun_steps, submit_scope="runs:write"),
    # Reloading a rejected form shows the run.
    Page("/runs/{run}/fork", run_page.show_run, fork_run, submit_scope="runs:write"),
)
