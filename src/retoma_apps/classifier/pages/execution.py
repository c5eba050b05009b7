"""The page of one execution: its state, its documents and its actions."""

from __future__ import annotations

import json
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass
from datetime import timedelta
from functools import partial
from typing import Any

from starlette.responses import HTMLResponse, JSONResponse, Response

from retoma import Client
from retoma.errors import InvalidInput, NotFound, RunBusy
from retoma.records import ItemStatus, Run, Scope
from retoma.server import Page, PageContext, describe_resolution
from retoma.states import RunState
from retoma_apps.classifier.models import ROUTE, Text
from retoma_apps.classifier.operations import executions
from retoma_apps.classifier.operations.executions import document_to_json
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
PAGE_SIZE = 50  # documents of one page
CHUNK = 500  # documents that are read at a time to find those that match
FILTERS = ("status", "q", "rotulo", "erro")
ADDRESS = (*FILTERS, "depois")  # what an action returns to
MAX_CHANGED_ROWS = 200  # rows of one partial update
MAX_RUNNING_ROWS = 50
FIRST = 1  # the position of the first document
MAP_LETTERS = {"CONCLUIDO": "C", "REVER": "V", "ERRO": "E", "PULADO": "S", "PROCESSANDO": "R", "PENDENTE": "P"}
MAX_TEXT = 60_000  # characters of a document that are shown
SUMMARY_TIMEOUT = timedelta(seconds=4)
_ERROR_GROUPS = EndedRunCache[list[tuple[str, int]]]()
_MAPS = EndedRunCache[str]()


@dataclass(frozen=True)
class ItemPage:
    """Documents of one page, and the position after which the next page begins, if there is one."""

    items: Sequence[ItemStatus]
    next: int | None


async def show(context: PageContext) -> Response:
    """Show a page of the documents that match the filters, and the one that is read beside them."""
    run = await _get_run(context)
    context.path = f"{ROUTE}execucoes/{run.id}"
    await context.load_keys()
    values, table = await _template_values(context, run)
    page = await _load_page(context, table, run, values["overview"])
    edited = context.query.get("corrigir", "") if run.state in CHANGEABLE else ""
    return context.render(
        "classifier_execution.html",
        **values,
        project=await _project_name(context.client, run.tenant),
        codes=json.dumps([each["codigo"] for each in run.input["documentos"]]) if table.is_filtered else "",
        rows="".join(table.render_row(item, editing=str(item.position) == edited) for item in page.items),
        page=page,
        page_size=PAGE_SIZE,
        reading=await _load_document(context, table, run, page) if "doc" in context.query else None,
    )


async def show_map(context: PageContext) -> Response:
    """Return the status of every document in the order of the upload, one letter each, as JSON."""
    run = await _get_run(context)

    async def load() -> str:
        if not (found := [item async for item in _iterate_items(context, run, {})]):
            found = [pending_item(each, position) for position, each in enumerate(run.input["documentos"], FIRST)]
        return "".join(MAP_LETTERS[_table(context, run).get_status(item)] for item in found)

    return JSONResponse({"statuses": await _MAPS.get_or_load(run, load)}, headers={"Cache-Control": "no-store"})


async def show_document(context: PageContext) -> Response:
    """Return what is read beside the table, for a page that is open."""
    run = await _get_run(context)
    context.path = f"{ROUTE}execucoes/{run.id}"
    await context.load_keys()
    values, table = await _template_values(context, run)
    reading = await _load_document(context, table, run, await _load_page(context, table, run, values["overview"]))
    return context.render("classifier_document.html", **values, reading=reading)


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
    return await executions.get_run(context.client, context.get_path_id("execucao"))


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
        "label": context.query.get("rotulo", ""),
        "code": context.query.get("erro", ""),
        "may_change": run.state in CHANGEABLE,
        # While only the summary of an earlier decision is computed, the next decision waits for it.
        "may_decide": run.state in CHANGEABLE
        or (run.state is RunState.RUNNING and overview.execution.finished_count == overview.execution.total),
        "describe_error_code": lambda code: describe_error_code(context.translator, code),
        "describe_resolution": lambda episode: describe_resolution(context, episode),
        **common_values(context),
    }
    return values, table


async def _load_document(context: PageContext, table: Table, run: Run, page: ItemPage) -> dict[str, Any] | None:
    """Return a document with its text, and its neighbours on this page; None if there is no such document."""
    codes = _codes_at(run, context.query.get("doc", ""))
    if len(codes) != 1:
        return None
    number = int(context.query["doc"])
    found = await context.client.runs.list_items(run.id, executions.DOCUMENTS_STEP, only=codes, limit=1)
    item = found[0] if found else pending_item(run.input["documentos"][number - FIRST], number)
    read = await context.client.runs.list_step_jobs(run.id, "text", item=codes[0], limit=1)
    text = Text.model_validate(read[0].output) if read and read[0].output else None
    positions = [each.position for each in page.items]
    later = [each for each in positions if each > number]
    earlier = [each for each in positions if each < number]
    return {
        "number": number,
        "shown": document_to_json(item, table.min_confidence),
        "status": table.get_status(item),
        "text": text,
        "is_cut": bool(text and (text.cortado or len(text.texto) > MAX_TEXT)),
        "max_text": MAX_TEXT,
        "file": table.file_url(codes[0]),
        "next": later[0] if later else None,
        "previous": earlier[-1] if earlier else None,
    }


def _table(context: PageContext, run: Run) -> Table:
    criteria = run.input["criterios"]
    asked = {name: context.query[name] for name in ADDRESS if context.query.get(name)}
    return Table(
        run.id,
        context,
        [each["rotulo"] for each in criteria["taxonomia"]],
        float(criteria.get("confianca_minima", 0)),
        context.csrf_token,
        asked,
        only_unsure=asked.get("status") == NEEDS_CHECK,
        may_decide=context.may(Scope.REVIEWS_WRITE, run.tenant),
        may_change=context.may(Scope.RUNS_WRITE, run.tenant),
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


async def _load_page(context: PageContext, table: Table, run: Run, overview: Overview) -> ItemPage:
    """Return the documents that match, after the position in the query."""
    after = context.get_query_number("depois", -1)
    if overview.execution.totals.total == 0:
        found = [item for item in _filter_pending(context, run) if item.position > after]
    else:
        found = []
        async for item in _iterate_items(context, run, _filters(context), after):
            if table.matches(item):
                found.append(item)
            if len(found) > PAGE_SIZE:
                break
    return ItemPage(found[:PAGE_SIZE], found[PAGE_SIZE - 1].position if len(found) > PAGE_SIZE else None)


async def _iterate_items(
    context: PageContext, run: Run, filters: Mapping[str, Any], after: int = -1
) -> AsyncIterator[ItemStatus]:
    while True:
        found = await context.client.runs.list_items(
            run.id, executions.DOCUMENTS_STEP, **filters, after=after, limit=CHUNK
        )
        for item in found:
            yield item
        if len(found) < CHUNK:
            return
        after = found[-1].position


def _filters(context: PageContext) -> dict[str, Any]:
    status = "ERRO" if context.query.get("erro") else context.query.get("status", "")
    wanted = next((each for each in DOCUMENT_STATUSES if each == status), None)
    labelled = status == NEEDS_CHECK or (not status and context.query.get("rotulo"))
    states = job_states_of("CONCLUIDO") if labelled else job_states_of(wanted) if wanted else None
    return {"states": states, "search": context.query.get("q") or None}


def _filter_pending(context: PageContext, run: Run) -> list[ItemStatus]:
    status, search = context.query.get("status", ""), context.query.get("q", "")
    items = [pending_item(each, position) for position, each in enumerate(run.input["documentos"], FIRST)]
    return [
        item
        for item in items
        if status in ("", DOCUMENT_STATUS_BY_JOB_STATE[item.state])
        and search.lower() in item.item.lower()
        and not any(context.query.get(name) for name in ("rotulo", "erro"))
    ]


async def _render_changed_rows(context: PageContext, table: Table, run: Run, overview: Overview) -> AsyncIterator[str]:
    """Render the rows that match the filters: the page removes rows that it asked for and did not get."""
    codes = _codes_at(run, context.query.get("n", ""))
    edited = context.query.get("corrigir", "") if run.state in CHANGEABLE else ""
    for item in await (_list_named(context, run, overview, codes) if codes else _list_running(context, run)):
        if table.matches(item):
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
    asked = {name: context.query[name] for name in ADDRESS if context.query.get(name)}
    following = context.fields.get("doc", "")
    if following.isascii() and following.isdigit():
        asked["doc"] = str(int(following[:6]))
    answer = context.redirect(f"{ROUTE}execucoes/{run.id}", notice, **asked)
    number = asked.get("doc") or context.fields.get("n", "")
    if number.isascii() and number.isdigit():
        answer.headers["location"] += f"#d{int(number[:6])}"
    return answer


async def _resume(context: PageContext, run: Run) -> str:
    await executions.resume_execution(context.client, run.id, by=context.by, key=context.idempotency_key)
    return "retomada_sem_worker" if await context.client.runs.find_missing_worker(run.id) else "retomada"


async def _rerun(context: PageContext, run: Run) -> str:
    """Rerun the failed documents. A stuck run is resumed first, because it must end before its errors can rerun."""
    try:
        made = await context.client.runs.rerun_failed(run.id, by=context.by, key=context.idempotency_key)
    except RunBusy:
        if run.state is not RunState.STUCK:
            raise
        await executions.resume_execution(context.client, run.id, by=context.by)
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


async def _decide_many(context: PageContext, run: Run) -> str:
    """Confirm, correct or skip all selected documents. The summary is computed once, after the last."""
    codes = _codes_at(run, ",".join(context.get_field_values("n")))
    action, label = context.fields.get("acao", ""), context.fields.get("rotulo", "")
    if not codes:
        return "nada_escolhido"
    if action == "pular":
        context.limit_client(Scope.RUNS_WRITE)  # a reviewer may send this form, and not skip
        skipping = {"by": context.by, "key": context.idempotency_key}
        await _retry_after_summary(
            context.client, run, lambda run: context.client.runs.skip(run.id, "text", codes, **skipping)
        )
        return "varios"
    shown, _ = await executions.list_documents(context.client, run, only=codes, limit=MAX_CHANGED_ROWS)
    labels = {each["codigo"]: label if action == "corrigir" else each["rotulo"] for each in shown}
    wanted = [(code, each) for code, each in labels.items() if each]
    try:
        for code, each in wanted:
            save = partial(_save_label, context, code=code, label=each, summarize=code == wanted[-1][0])
            await _retry_after_summary(context.client, run, save)
    except InvalidInput:
        return "sem_rotulo"
    return "varios" if wanted else "sem_rotulo"


async def _save_label(context: PageContext, run: Run, code: str, label: str, *, summarize: bool = True) -> None:
    await executions.correct_label(context.client, run, code, label, by=context.by, summarize=summarize)


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


ACTIONS: Mapping[str, tuple[Action, Scope]] = {
    "retomar": (_resume, Scope.RUNS_WRITE),
    "reprocessar-erros": (_rerun, Scope.RUNS_WRITE),
    "cancelar": (_cancel, Scope.RUNS_WRITE),
    "corrigir": (_correct, Scope.REVIEWS_WRITE),
    "confirmar": (_confirm, Scope.REVIEWS_WRITE),
    "pular": (_skip, Scope.RUNS_WRITE),
    "varios": (_decide_many, Scope.REVIEWS_WRITE),
}
PAGES = (
    Page(PATH, show),
    Page(f"{PATH}/partes", show_parts),
    Page(f"{PATH}/mapa", show_map),
    Page(f"{PATH}/documento", show_document),
    *(
        Page(f"{PATH}/{name}", submit=_action_page(action), submit_scope=scope)
        for name, (action, scope) in ACTIONS.items()
    ),
)
