"""Actions on everything that matches a filter: the preview, the progress, and a list of them."""

from __future__ import annotations

from datetime import date, datetime, tzinfo

from starlette.responses import Response

from retoma.client.bulk_actions import BulkFilter
from retoma.errors import Conflict, NotFound
from retoma.records import BulkKind, Scope
from retoma.server.pages.page import Page
from retoma.server.pages.page_context import PageContext, parse_number
from retoma.states import RUN_FINAL_STATES, RunState
from retoma.translations import N_

KIND_NAMES = {
    BulkKind.CANCEL_RUNS: N_("Cancel runs"),
    BulkKind.RERUN_FAILED: N_("Rerun failed jobs"),
    BulkKind.REDELIVER: N_("Resend dead webhooks"),
    BulkKind.RETRY_JOBS: N_("Retry waiting jobs now"),
}
# What is chosen by which fields of the form.
RUN_FIELDS = ("pipeline", "tenant", "state", "q", "since")
FIELDS = {
    BulkKind.CANCEL_RUNS: RUN_FIELDS,
    BulkKind.RERUN_FAILED: RUN_FIELDS,
    BulkKind.REDELIVER: ("pipeline", "tenant", "endpoint", "since"),
    BulkKind.RETRY_JOBS: ("pipeline", "tenant", "queue", "step", "code"),
}
STATES: dict[BulkKind, list[RunState]] = {
    BulkKind.CANCEL_RUNS: [state for state in RunState if state not in (*RUN_FINAL_STATES, RunState.CANCELLING)],
    BulkKind.RERUN_FAILED: [RunState.FAILED, RunState.COMPLETED_WITH_ERRORS],
}


async def show_bulk_actions(context: PageContext) -> Response:
    return context.render(
        "bulk_actions.html",
        actions=await context.client.bulk_actions.list(),
        kind_names=KIND_NAMES,
        now=await context.client.now(),
    )


async def preview_bulk_action(context: PageContext) -> Response:
    kind = context.get_query_choice("kind", BulkKind) or BulkKind.CANCEL_RUNS
    _require_scope_of(context, kind)
    wanted = read_bulk_filter(context, kind)
    preview = await context.client.bulk_actions.preview(kind, wanted, tenant=context.query.get("tenant") or None)
    return context.render(
        "bulk_preview.html",
        kind=kind,
        kind_names=KIND_NAMES,
        fields=FIELDS[kind],
        states=list(dict.fromkeys([*STATES.get(kind, []), *(wanted.states or ())])),
        preview=preview,
        query=context.query,
        more_match="more" in context.query,
    )


async def start_bulk_action(context: PageContext) -> Response:
    """Start what the query of the preview describes, unless more match than it has shown."""
    kind = context.get_query_choice("kind", BulkKind)
    if kind is None:
        raise NotFound(context.gettext("There is no such action."))
    _require_scope_of(context, kind)
    wanted, tenant = read_bulk_filter(context, kind), context.query.get("tenant") or None
    expected = parse_number(context.fields.get("expected", ""), 0)
    try:
        action = await context.client.bulk_actions.start(
            kind, wanted, tenant=tenant, by=context.by, expected=expected, key=context.idempotency_key
        )
    except Conflict:
        if (await context.client.bulk_actions.preview(kind, wanted, tenant=tenant)).count <= expected:
            raise
        return context.redirect(context.link_to("/bulk-actions/new", more="1"))
    return context.redirect(f"/bulk-actions/{action.id}")


async def show_bulk_action(context: PageContext) -> Response:
    action = await context.client.bulk_actions.get(context.get_path_id("action"))
    return context.render("bulk_action.html", action=action, kind_names=KIND_NAMES, now=await context.client.now())


async def abort_bulk_action(context: PageContext) -> Response:
    action = context.get_path_id("action")
    await context.client.bulk_actions.abort(action, by=context.by)
    return context.redirect(f"/bulk-actions/{action}", "bulk_aborted")


def read_bulk_filter(context: PageContext, kind: BulkKind) -> BulkFilter:
    """Return the filter in the query, of the fields that apply to this kind."""
    query = {name: value.strip() for name, value in context.query.items() if name in FIELDS[kind]}
    return BulkFilter(
        pipeline=context.get_query_pipelines(),
        states=_read_states(context) if query.get("state") else None,
        since=parse_day(query.get("since", ""), context.time_zone),
        title=query.get("q") or None,
        endpoint=parse_number(query.get("endpoint", ""), 0) or None,
        queue=query.get("queue") or None,
        step=query.get("step") or None,
        code=query.get("code") or None,
    )


def _read_states(context: PageContext) -> list[RunState]:
    """Return the state in the query. In a state that does not suit the action, nothing matches: never everything."""
    state = context.get_query_choice("state", RunState)
    if state is None:
        raise NotFound(context.gettext("There is no such state."))
    return [state]


def parse_day(text: str, zone: tzinfo) -> datetime | None:
    """Return the start of a day in the viewer's time zone."""
    try:
        return datetime.combine(date.fromisoformat(text), datetime.min.time(), zone) if text else None
    except ValueError:
        raise NotFound("`since` must be a day, such as 2030-01-31") from None


def _require_scope_of(context: PageContext, kind: BulkKind) -> None:
    """Sending webhooks again needs another scope than the other kinds."""
    if kind is BulkKind.REDELIVER:
        context.limit_client(Scope.DELIVERIES_WRITE)


PAGES = (
    Page("/bulk-actions", show_bulk_actions),
    Page("/bulk-actions/new", preview_bulk_action, start_bulk_action, scope="runs:write", submit_scope="runs:write"),
    Page("/bulk-actions/{action}", show_bulk_action),
    Page("/bulk-actions/{action}/abort", submit=abort_bulk_action, submit_scope="runs:write"),
)
