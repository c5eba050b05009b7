"""Edit a result of a run or skip an item."""

from __future__ import annotations

from starlette.responses import Response

from retoma.errors import InvalidInput, RunBusy
from retoma.server.pages import forms
from retoma.server.pages import run as run_page
from retoma.server.pages.page import Page
from retoma.server.pages.page_context import PageContext

RESULT_FIELDS = forms.build_fields({})


async def edit_result(context: PageContext) -> Response:
    """Replace the result. A rejected text is shown again in the form."""
    run, step, item = context.get_path_id("run"), context.query.get("step", ""), context.query.get("item", "")
    value, errors = forms.parse_form(RESULT_FIELDS, context.fields)
    if errors:
        return await _show_rejected_form(context, 422, context.translate_errors(errors)[forms.ROOT_NAME])
    try:
        await context.client.runs.edit(run, step, value, item=item, by=context.by, key=context.idempotency_key)
    except InvalidInput as error:
        messages = context.translate_validation_errors(RESULT_FIELDS, error)
        return await _show_rejected_form(context, 422, messages.get(forms.ROOT_NAME, str(error)))
    except RunBusy as error:
        changed = context.gettext("This has already changed")
        return await _show_rejected_form(context, 409, f"{changed}: {error}.")
    return context.redirect(f"/runs/{run}", "edited", step=step, item=item)


async def skip_item(context: PageContext) -> Response:
    run, step, item = context.get_path_id("run"), context.query.get("step", ""), context.query.get("item", "")
    await context.client.runs.skip(run, step, [item], by=context.by, key=context.idempotency_key)
    return context.redirect(f"/runs/{run}", "skipped", step=step, item=item)


async def _show_rejected_form(context: PageContext, status: int, error: str) -> Response:
    return await run_page.show_run(
        context, status, run_page.RejectedEdit(context.fields.get(forms.ROOT_NAME, ""), error)
    )


# A rejected form leaves its own address in the browser: reloading it shows the run.
PAGES = (
    Page("/runs/{run}/edit", run_page.show_run, edit_result, submit_scope="runs:write"),
    Page("/runs/{run}/skip", submit=skip_item, submit_scope="runs:write"),
)
