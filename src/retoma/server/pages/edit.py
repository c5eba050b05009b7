"""Edit a result of a run or skip an item."""

from __future__ import annotations

from pydantic import ValidationError
from starlette.responses import Response

from retoma.errors import InvalidInput, RunBusy
from retoma.server.pages import forms
from retoma.server.pages import run as run_page
from retoma.server.pages.page import Page
from retoma.server.pages.page_context import PageContext

RESULT_FIELDS = forms.build_fields({})


async def edit_result(context: PageContext) -> Response:
    """Replace the result. A rejected text is shown again in the form."""
    run = context.get_path_id("run")
    value, wrong = forms.parse_form(RESULT_FIELDS, context.fields)
    if wrong:
        return await _show_rejected_form(context, 422, context.translate_errors(wrong)[forms.ROOT_NAME])
    try:
        await context.client.runs.edit(
            run, _get_step(context), value, item=_get_item(context), by=context.by, key=context.idempotency_key
        )
    except InvalidInput as error:
        return await _show_rejected_form(context, 422, _explain_invalid(context, error))
    except RunBusy as error:
        changed = context.gettext("This has already changed")
        return await _show_rejected_form(context, 409, f"{changed}: {error}.")
    return context.redirect(f"/runs/{run}", "edited", step=_get_step(context), item=_get_item(context))


async def skip_item(context: PageContext) -> Response:
    run = context.get_path_id("run")
    await context.client.runs.skip(
        run, _get_step(context), [_get_item(context)], by=context.by, key=context.idempotency_key
    )
    return context.redirect(f"/runs/{run}", "skipped", step=_get_step(context), item=_get_item(context))


async def _show_rejected_form(context: PageContext, status: int, error: str) -> Response:
    return await run_page.show_run(
        context, status, run_page.RejectedEdit(context.fields.get(forms.ROOT_NAME, ""), error)
    )


def _explain_invalid(context: PageContext, error: InvalidInput) -> str:
    """Return the validation error of the result."""
    if not isinstance(error.__cause__, ValidationError):
        return str(error)
    return context.translate_errors(forms.map_validation_errors(RESULT_FIELDS, context.fields, error.__cause__))[
        forms.ROOT_NAME
    ]


def _get_step(context: PageContext) -> str:
    return context.query.get("step", "")


def _get_item(context: PageContext) -> str:
    return context.query.get("item", "")


# A rejected form leaves its own address in the browser: reloading it shows the run.
PAGES = (Page("/runs/{run}/edit", run_page.show_run, edit_result), Page("/runs/{run}/skip", submit=skip_item))
