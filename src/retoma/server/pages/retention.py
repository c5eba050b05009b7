"""How long ended runs are kept, for administrators: rules, what would be and was removed, disk space; erasing a run."""

from __future__ import annotations

from datetime import timedelta

from starlette.responses import Response

from retoma.errors import InvalidInput, NotFound
from retoma.records import FinalClass
from retoma.server.pages.page import Page
from retoma.server.pages.page_context import PageContext, parse_number
from retoma.translations import N_

SCOPE = "admin"
CLASS_NAMES = {FinalClass.ENDED: N_("Without failures"), FinalClass.FAILED: N_("With failures")}


async def show_retention(context: PageContext, status: int = 200, error: str = "") -> Response:
    space = context.client.retention
    return context.render(
        "retention.html",
        status,
        rules=await space.list_rules(),
        removals=await space.list_removals(limit=30),
        holds=await space.list_holds(),
        totals=await space.get_totals(),
        tables=await space.list_table_sizes(),
        tenants=await context.client.tenants.list_names(),
        class_names={each: context.translate(name) for each, name in CLASS_NAMES.items()},
        fields=context.fields if error else {},
        error=error,
        preview=await space.preview() if context.query.get("preview") else None,
        now=await context.client.now(),
    )


async def set_rule(context: PageContext) -> Response:
    fields = context.fields
    days = fields.get("days", "").strip()
    try:
        await context.client.retention.set_rule(
            timedelta(days=parse_number(days, -1)) if days else None,
            pipeline=fields.get("pipeline", "").strip() or None,
            tenant=fields.get("tenant") or None,
            final_class=fields.get("final_class", ""),
        )
    except (InvalidInput, NotFound) as error:
        return await show_retention(context, 422, context.translate_error(error))
    return context.redirect("/retention", "rule_set")


async def remove_rule(context: PageContext) -> Response:
    fields = context.fields
    try:
        await context.client.retention.remove_rule(
            pipeline=fields.get("pipeline") or None,
            tenant=fields.get("tenant") or None,
            final_class=fields.get("final_class", ""),
        )
    except (InvalidInput, NotFound) as error:
        return await show_retention(context, 409, context.translate_error(error))
    return context.redirect("/retention", "rule_removed")


async def erase_run(context: PageContext) -> Response:
    await context.client.retention.erase_run(context.get_path_id("run"))
    return context.redirect("/runs", "run_erased")


PAGES = (
    Page("/retention", show_retention, set_rule, scope=SCOPE, submit_scope=SCOPE),
    Page("/retention/remove", show_retention, remove_rule, scope=SCOPE, submit_scope=SCOPE),
    Page("/runs/{run}/erase", submit=erase_run, submit_scope=SCOPE),
)
