"""The page of one execution: its state, its documents and its actions."""

from __future__ import annotations

import json
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping, Sequence
from datetime import timedelta
from typing import Any

from starlette.responses import HTMLResponse, Response, StreamingResponse

from retoma import Client
from retoma.errors import InvalidInput, NotFound, RunBusy
from retoma.records import ItemStatus, Run
from retoma.server import Page, PageContext, describe_resolution
from retoma.states import RunState
from retoma_apps.classifier.models import ROUTE
from retoma_apps.classifier.operations import executions
from retoma_apps.classifier.pages.badges import BAR_FILLS, DOCUMENT_BADGES, EXECUTION_BADGES
from retoma_apps.classifier.pages.common import common_values
from retoma_apps.classifier.pages.ended_run_cache import EndedRunCache
from retoma_apps.classifier.pages.messages import describe_error_code
from retoma_apps.classifier.pages.overview import Overview, describe_cause, get_overview
from retoma_apps.classifier.pages.rows import Table, pending_item
from retoma_apps.classifier.states import DOCUMENT_STATUS_BY_JOB_STATE, DOCUMENT_STATUSES, DocumentStatus, job_states_of

PATH = f"{ROUTE}execucoes/{{execucao}}"
CHANGEABLE = (RunState.COMPLETED, RunState.COMPLETED_WITH_ERRORS, RunState.FAILED)
NEEDS_CHECK = "REVER"
CHUNK = 1_000  # rows that are rendered and sent at a time
MAX_CHANGED_ROWS = 200  # rows of one partial update
MAX_RUNNING_ROWS = 50
FIRST = 1  # the position of the first document
ROWS_PLACEHOLDER = '<tr id="rows"></tr>'  # where the rows go in the rendered template
SUMMARY_TIMEOUT = timedelta(seconds=4)
_ERROR_GROUPS = EndedRunCache[list[tuple[str, int]]]()


async def show(context: PageContext) -> Response:
    """Stream the page: its head is sent before the documents are read, however many there are."""
    run = await _get_run(context)
    context.path = f"{ROUTE}execucoes/{run.id}"
    values, table = await _template_values(context, run)
    codes = json.dumps([each["codigo"] for each in run.input["documentos"]]) if table.query else ""
    project = await _project_name(context.client, run.tenant)
    answer = context.render(
        "classifier_execution.html", **values, project=project, codes=codes, rows_placeholder=ROWS_PLACEHOLDER
    )
    before, _, after = bytes(answer.body).decode().partition(ROWS_PLACEHOLDER)
    rows = _rows(context, table, run, values["overview"])
    streamed = StreamingResponse(_surround(before, rows, after, _no_match_row(context, table)), answer.status_code)
    streamed.raw_headers[:] = [header for header in answer.raw_headers if header[0] != b"content-length"]
    return streamed


async def show_parts(context: PageContext) -> Response:
    """Return all parts except the table, plus the rows that the query names or that are running."""
    run = await _get_run(context)
    context.path = f"{ROUTE}execucoes/{run.id}"
    values, table = await _template_values(context, run)
    changed = "".join([row async for row in _render_changed_rows(context, table, run, values["overview"])])
    answer = context.render("classifier_parts.html", **values)
    body = f"{bytes(answer.body).decode()}<table><tbody>{changed}</tbody></table>"
    return HTMLResponse(body, headers={"Cache-Control": "no-store", "Vary": "Cookie, Accept-Language"})


async def _get_run(context: PageContext) -> Run:
    return await executions.get_run(context.client, context.get_path_id("execucao"), None)


async def _template_values(context: PageContext, run: Run) -> tuple[dict[str, Any], Table]:
    client = context.client
    last = await client.runs.get_last_event_id(run.id)  # read first, so no later event is missed
    now = await client.now()
    overview = await get_overview(context, run, now)
    table = _table(context, run)
    charges = await client.costs.get_totals(by=(), run=run.id)
    values = {
        "run": run,
        "now": now,
        "last_event": last,
        "overview": overview,
        "execution": overview.execution,
        "status_badge": EXECUTION_BADGES[overview.execution.status],
        "badges": DOCUMENT_BADGES,
        "bar": _bar_segments(overview),
        "describe_cause": describe_cause,
        "micros": sum(each.micros for each in charges),
        "unpriced": sum(each.unpriced for each in charges),
        "groups": await _ERROR_GROUPS.get_or_load(
            run, lambda: client.runs.count_item_codes(run.id, executions.DOCUMENTS_STEP)
        ),
        "table": table,
        "chosen": context.query.get("status", ""),
        "q": context.query.get("q", ""),
        "may_change": run.state in CHANGEABLE,
        "describe_error_code": lambda code: describe_error_code(context.translator, code),
        "describe_resolution": lambda episode: describe_resolution(context, episode),
        **common_values(context),
    }
    return values, table


def _table(context: PageContext, run: Run) -> Table:
    criteria = run.input["criterios"]
    asked = {name: context.query[name] for name in ("status", "q") if context.query.get(name)}
    return Table(
        run.id,
        context,
        [each["rotulo"] for each in criteria["taxonomia"]],
        float(criteria.get("confianca_minima", 0)),
        context.csrf_token,
        asked,
        only_unsure=asked.get("status") == NEEDS_CHECK,
    )


async def _project_name(client: Client, tenant: str) -> str:
    """Return the project's name, or its id if it was deleted."""
    try:
        return str((await client.tenants.get_profile(tenant)).value["nome"])
    except NotFound:
        return tenant


def _bar_segments(overview: Overview) -> list[tuple[str, DocumentStatus, float, float]]:
    """Return class, status, start and width of each segment, in percent."""
    total, begin, made = max(1, overview.execution.total), 0.0, []
    for status, fill in BAR_FILLS.items():
        width = 100 * overview.execution.counts[status] / total
        made.append((fill, status, begin, width))
        begin += width
    return made


def _no_match_row(context: PageContext, table: Table) -> str:
    """Return the row that shows while there is no other; with filters, all others may disappear later."""
    text = context.gettext("No matching documents.")
    return f'<tr class="nothing"><td colspan="7" class="dim">{text}</td></tr>' if table.query else ""


async def _surround(before: str, rows: AsyncIterator[str], after: str, nothing: str) -> AsyncIterator[str]:
    yield before
    async for part in rows:
        yield part
    yield nothing + after


async def _rows(context: PageContext, table: Table, run: Run, overview: Overview) -> AsyncIterator[str]:
    edited = context.query.get("corrigir", "") if run.state in CHANGEABLE else ""
    async for items in _items(context, run, overview):
        yield "".join([table.render_row(item, editing=str(item.position) == edited) for item in items])


async def _items(context: PageContext, run: Run, overview: Overview) -> AsyncIterator[Sequence[ItemStatus]]:
    if overview.execution.totals.total == 0:
        yield _filter_pending(context, run)
        return
    after, filters = -1, _filters(context)
    while True:
        found = await context.client.runs.list_items(
            run.id, executions.DOCUMENTS_STEP, **filters, after=after, limit=CHUNK
        )
        yield found
        if len(found) < CHUNK:
            return
        after = found[-1].position


def _filters(context: PageContext) -> dict[str, Any]:
    status = context.query.get("status", "")
    wanted = next((each for each in DOCUMENT_STATUSES if each == status), None)
    states = job_states_of("CONCLUIDO") if status == NEEDS_CHECK else job_states_of(wanted) if wanted else None
    return {"states": states, "search": context.query.get("q") or None}


def _filter_pending(context: PageContext, run: Run) -> list[ItemStatus]:
    status, search = context.query.get("status", ""), context.query.get("q", "")
    items = [pending_item(each, position) for position, each in enumerate(run.input["documentos"], FIRST)]
    return [
        item
        for item in items
        if status in ("", DOCUMENT_STATUS_BY_JOB_STATE[item.state]) and search.lower() in item.item.lower()
    ]


async def _render_changed_rows(context: PageContext, table: Table, run: Run, overview: Overview) -> AsyncIterator[str]:
    """Render the rows that match the filters: the page removes rows that it asked for and did not get."""
    codes = _codes_at(run, context.query.get("n", ""))
    edited = context.query.get("corrigir", "") if run.state in CHANGEABLE else ""
    for item in await (_list_named(context, run, overview, codes) if codes else _list_running(context, run)):
        yield table.render_row(item, editing=str(item.position) == edited)


async def _list_named(context: PageContext, run: Run, overview: Overview, codes: Sequence[str]) -> list[ItemStatus]:
    if overview.execution.totals.total == 0:
        return [item for item in _filter_pending(context, run) if item.item in codes]
    return await context.client.runs.list_items(
        run.id, executions.DOCUMENTS_STEP, **_filters(context), only=codes, limit=MAX_CHANGED_ROWS
    )


async def _list_running(context: PageContext, run: Run) -> list[ItemStatus]:
    if run.is_over or context.query.get("status", "PROCESSANDO") != "PROCESSANDO":
        return []
    at_work, search = job_states_of("PROCESSANDO"), context.query.get("q") or None
    return await context.client.runs.list_items(
        run.id, executions.DOCUMENTS_STEP, states=at_work, search=search, limit=MAX_RUNNING_ROWS
    )


def _codes_at(run: Run, numbers: str) -> list[str]:
    given = run.input["documentos"]
    named = [
        int(each)
        for each in numbers.split(",")[:MAX_CHANGED_ROWS]
        if len(each) < 9 and each.isascii() and each.isdigit()
    ]
    return [given[number - FIRST]["codigo"] for number in named if FIRST <= number < len(given) + FIRST]


Action = Callable[[PageContext, Run], Awaitable[str]]


def _action_page(action: Action) -> Callable[[PageContext], Awaitable[Response]]:
    """Wrap an action: it redirects to the page with the same filters and a notice."""

    async def perform(context: PageContext) -> Response:
        run = await _get_run(context)
        try:
            notice = await action(context, run)
        except (RunBusy, TimeoutError):
            notice = "ocupada"
        return _redirect_back(context, run, notice)

    return perform


def _redirect_back(context: PageContext, run: Run, notice: str) -> Response:
    asked = {name: context.query[name] for name in ("status", "q") if context.query.get(name)}
    answer = context.redirect(f"{ROUTE}execucoes/{run.id}", notice, **asked)
    number = context.fields.get("n", "")
    if number.isascii() and number.isdigit():
        answer.headers["location"] += f"#d{int(number[:6])}"
    return answer


async def _resume(context: PageContext, run: Run) -> str:
    await executions.resume_execution(context.client, run.id, tenant=None, by=context.by, key=context.idempotency_key)
    return "retomada_sem_worker" if await context.client.runs.find_missing_worker(run.id) else "retomada"


async def _rerun(context: PageContext, run: Run) -> str:
    """Rerun the failed documents. A stuck run is resumed first, because it must end before its errors can rerun."""
    try:
        made = await context.client.runs.rerun_failed(run.id, by=context.by, key=context.idempotency_key)
    except RunBusy:
        if run.state is not RunState.STUCK:
            raise
        await executions.resume_execution(context.client, run.id, tenant=None, by=context.by)
        return "retomada_antes"
    return "refazendo" if made.jobs else "sem_erros"


async def _cancel(context: PageContext, run: Run) -> str:
    await context.client.runs.cancel(run.id, by=context.by, key=context.idempotency_key)
    return "cancelada"


async def _correct(context: PageContext, run: Run) -> str:
    code, label = _requested_code(context, run), context.fields.get("rotulo", "")
    try:
        await _retry_after_summary(context.client, run, lambda run: _save_label(context, run, code, label))
    except InvalidInput:
        return "sem_rotulo"
    return "corrigido"


async def _confirm(context: PageContext, run: Run) -> str:
    """Record the model's label as confirmed by a person."""
    code = _requested_code(context, run)
    shown, _ = await executions.list_documents(context.client, run, only=[code], limit=1)
    if not shown:
        raise NotFound(f"{code} has no label: this execution ended before it was read")
    await _retry_after_summary(
        context.client, run, lambda run: _save_label(context, run, code, shown[0]["rotulo"] or "")
    )
    return "confirmado"


async def _skip(context: PageContext, run: Run) -> str:
    code = _requested_code(context, run)
    await _retry_after_summary(
        context.client,
        run,
        lambda run: context.client.runs.skip(run.id, "text", [code], by=context.by, key=context.idempotency_key),
    )
    return "pulado"


async def _save_label(context: PageContext, run: Run, code: str, label: str) -> None:
    await executions.correct_label(context.client, run, code, label, tenant=None, by=context.by)


async def _retry_after_summary(client: Client, run: Run, action: Callable[[Run], Awaitable[Any]]) -> None:
    """Run the action; if the summary of an earlier correction is still running, wait for it and try again."""
    try:
        await action(run)
    except RunBusy:
        execution = await executions.get_execution(client, run)
        if execution.finished_count != execution.total:
            raise
        await action(await client.wait(run.id, SUMMARY_TIMEOUT))


def _requested_code(context: PageContext, run: Run) -> str:
    found = _codes_at(run, context.fields.get("n", ""))
    if len(found) != 1:
        raise NotFound("there is no such document")
    return found[0]


ACTIONS: Mapping[str, Action] = {
    "retomar": _resume,
    "reprocessar-erros": _rerun,
    "cancelar": _cancel,
    "corrigir": _correct,
    "confirmar": _confirm,
    "pular": _skip,
}
PAGES = (
    Page(PATH, show),
    Page(f"{PATH}/partes", show_parts),
    *(Page(f"{PATH}/{name}", submit=_action_page(action)) for name, action in ACTIONS.items()),
)
