"""One execution: how it stands, every document in a row, and what a person may do."""

from __future__ import annotations

import json
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping, Sequence
from datetime import timedelta
from typing import Any

from starlette.responses import HTMLResponse, Response, StreamingResponse

from retoma import Client
from retoma.errors import AtWork, InvalidInput, NotFound
from retoma.records import Item, Run
from retoma.server import Page, Visit
from retoma.states import JobState, RunState
from retoma_apps.classifier import batches
from retoma_apps.classifier.models import ROUTE
from retoma_apps.classifier.pages.looks import DOCUMENTS, PARTS, STATUSES
from retoma_apps.classifier.pages.remembered import Remembered
from retoma_apps.classifier.pages.rows import Table, not_laid_out
from retoma_apps.classifier.pages.standing import Standing, cause_of, standing
from retoma_apps.classifier.pages.words import Words
from retoma_apps.classifier.states import BY_JOB_STATE, DOCUMENT_STATUSES, DocumentStatus, job_states_of

PATH = f"{ROUTE}execucoes/{{execucao}}"
CHANGEABLE = (RunState.COMPLETED, RunState.COMPLETED_WITH_ERRORS, RunState.FAILED)
TO_CHECK = "REVER"
CHUNK = 1_000  # rows that are made and sent at a time
MOST_CHANGED = 200  # rows of one look at what has changed
MOST_AT_WORK = 50
FIRST = 1  # the position of the first document
HERE = '<tr id="rows"></tr>'  # where the rows come in what the template made
SUMMARY_TAKES = timedelta(seconds=4)
_COUNTED = Remembered[list[tuple[str, int]]]()


async def show(visit: Visit) -> Response:
    """Begins to answer before the documents are read: the head is there at once, however many there are."""
    say, run = Words(visit.language), await _run(visit)
    visit.path = f"{ROUTE}execucoes/{run.id}"
    values, table = await _values(visit, say, run)
    codes = json.dumps([each["codigo"] for each in run.input["documentos"]]) if table.query else ""
    project = await _project_name(visit.client, run.tenant)
    answer = visit.show("classifier_execution.html", **values, project=project, codes=codes, here_come_the_rows=HERE)
    before, _, after = bytes(answer.body).decode().partition(HERE)
    rows = _rows(visit, table, run, values["standing"])
    streamed = StreamingResponse(_around(before, rows, after, _nothing(say, table)), answer.status_code)
    streamed.raw_headers[:] = [header for header in answer.raw_headers if header[0] != b"content-length"]
    return streamed


async def parts(visit: Visit) -> Response:
    """What may have changed: all but the rows, those that the address names by their numbers, and those at work."""
    say, run = Words(visit.language), await _run(visit)
    visit.path = f"{ROUTE}execucoes/{run.id}"
    values, table = await _values(visit, say, run)
    changed = "".join([row async for row in _changed(visit, table, run, values["standing"])])
    answer = visit.show("classifier_parts.html", **values)
    body = f"{bytes(answer.body).decode()}<table><tbody>{changed}</tbody></table>"
    return HTMLResponse(body, headers={"Cache-Control": "no-store", "Vary": "Cookie, Accept-Language"})


async def _run(visit: Visit) -> Run:
    return await batches.found(visit.client, visit.id("execucao"), None)


async def _values(visit: Visit, say: Words, run: Run) -> tuple[dict[str, Any], Table]:
    client = visit.client
    last = await client.last_event(run.id)  # before all else, so that nothing is missed
    now = await client.now()
    stands = await standing(visit, say, run, now)
    table = _table(visit, say, run)
    charges = await client.charge_totals(by=(), run=run.id)
    values = {
        "w": say,
        "run": run,
        "now": now,
        "last_event": last,
        "standing": stands,
        "seen": stands.seen,
        "look": STATUSES[stands.status],
        "looks_of": DOCUMENTS,
        "bar": _bar(stands),
        "cause_of": cause_of,
        "micros": sum(each.micros for each in charges),
        "unpriced": sum(each.unpriced for each in charges),
        "groups": await _COUNTED.of(run, lambda: client.item_codes(run.id, batches.SOURCE)),
        "table": table,
        "chosen": visit.asked.get("status", ""),
        "q": visit.asked.get("q", ""),
        "may_change": run.state in CHANGEABLE,
        "said": say.said(visit.asked.get("said", "")),
    }
    return values, table


def _table(visit: Visit, say: Words, run: Run) -> Table:
    criteria = run.input["criterios"]
    asked = {name: visit.asked[name] for name in ("status", "q") if visit.asked.get(name)}
    return Table(
        run.id,
        say,
        [each["rotulo"] for each in criteria["taxonomia"]],
        float(criteria.get("confianca_minima", 0)),
        visit.csrf,
        asked,
        only_unsure=asked.get("status") == TO_CHECK,
        comma="," if visit.language == "pt" else ".",
    )


async def _project_name(client: Client, tenant: str) -> str:
    """Of a project that is gone, the id."""
    try:
        return str((await client.profile(tenant)).value["nome"])
    except NotFound:
        return tenant


def _bar(stands: Standing) -> list[tuple[str, DocumentStatus, float, float]]:
    """Class, status, begin and width of each part, in percent."""
    total, begin, made = max(1, stands.seen.total), 0.0, []
    for status, fill in PARTS.items():
        width = 100 * stands.seen.counts[status] / total
        made.append((fill, status, begin, width))
        begin += width
    return made


def _states(status: DocumentStatus) -> list[JobState]:
    return [JobState(state) for state in job_states_of(status)]


def _nothing(say: Words, table: Table) -> str:
    """Seen while there is no other row; filters may leave none later."""
    return f'<tr class="nothing"><td colspan="7" class="dim">{say("no match")}</td></tr>' if table.query else ""


async def _around(before: str, rows: AsyncIterator[str], after: str, nothing: str) -> AsyncIterator[str]:
    yield before
    async for part in rows:
        yield part
    yield nothing + after


async def _rows(visit: Visit, table: Table, run: Run, stands: Standing) -> AsyncIterator[str]:
    edited = visit.asked.get("corrigir", "") if run.state in CHANGEABLE else ""
    async for items in _items(visit, run, stands):
        yield "".join([table.row(item, editing=str(item.position) == edited) for item in items])


async def _items(visit: Visit, run: Run, stands: Standing) -> AsyncIterator[Sequence[Item]]:
    if stands.seen.totals.total == 0:
        yield _fitting(visit, run)
        return
    after, filters = -1, _filters(visit)
    while True:
        found = await visit.client.items(run.id, batches.SOURCE, **filters, after=after, limit=CHUNK)
        yield found
        if len(found) < CHUNK:
            return
        after = found[-1].position


def _filters(visit: Visit) -> dict[str, Any]:
    status = visit.asked.get("status", "")
    wanted = next((each for each in DOCUMENT_STATUSES if each == status), None)
    states = _states("CONCLUIDO") if status == TO_CHECK else _states(wanted) if wanted else None
    return {"states": states, "search": visit.asked.get("q") or None}


def _fitting(visit: Visit, run: Run) -> list[Item]:
    status, search = visit.asked.get("status", ""), visit.asked.get("q", "")
    return [item for item in _not_laid_out(run) if _fits(item, status, search)]


def _not_laid_out(run: Run) -> list[Item]:
    return [not_laid_out(each, position) for position, each in enumerate(run.input["documentos"], FIRST)]


def _fits(item: Item, status: str, search: str) -> bool:
    return status in ("", BY_JOB_STATE[item.state]) and search.lower() in item.item.lower()


async def _changed(visit: Visit, table: Table, run: Run, stands: Standing) -> AsyncIterator[str]:
    """Only what the filters let through: the page takes out what it asked for and does not get."""
    codes = _codes(run, visit.asked.get("n", ""))
    edited = visit.asked.get("corrigir", "") if run.state in CHANGEABLE else ""
    for item in await (_named(visit, run, stands, codes) if codes else _at_work(visit, run)):
        yield table.row(item, editing=str(item.position) == edited)


async def _named(visit: Visit, run: Run, stands: Standing, codes: Sequence[str]) -> list[Item]:
    if stands.seen.totals.total == 0:
        return [item for item in _fitting(visit, run) if item.item in codes]
    return await visit.client.items(run.id, batches.SOURCE, **_filters(visit), only=codes, limit=MOST_CHANGED)


async def _at_work(visit: Visit, run: Run) -> list[Item]:
    if run.is_over or visit.asked.get("status", "PROCESSANDO") != "PROCESSANDO":
        return []
    at_work, search = _states("PROCESSANDO"), visit.asked.get("q") or None
    return await visit.client.items(run.id, batches.SOURCE, states=at_work, search=search, limit=MOST_AT_WORK)


def _codes(run: Run, numbers: str) -> list[str]:
    given = run.input["documentos"]
    named = [
        int(each) for each in numbers.split(",")[:MOST_CHANGED] if len(each) < 9 and each.isascii() and each.isdigit()
    ]
    return [given[number - FIRST]["codigo"] for number in named if FIRST <= number < len(given) + FIRST]


Act = Callable[[Visit, Run], Awaitable[str]]


def _acting(act: Act) -> Callable[[Visit], Awaitable[Response]]:
    """An act, after which the page is shown as it was looked at, and says how it went."""

    async def acted(visit: Visit) -> Response:
        run = await _run(visit)
        try:
            notice = await act(visit, run)
        except (AtWork, TimeoutError):
            notice = "ocupada"
        return _back(visit, run, notice)

    return acted


def _back(visit: Visit, run: Run, notice: str) -> Response:
    asked = {name: visit.asked[name] for name in ("status", "q") if visit.asked.get(name)}
    answer = visit.go(f"{ROUTE}execucoes/{run.id}", notice, **asked)
    number = visit.fields.get("n", "")
    if number.isascii() and number.isdigit():
        answer.headers["location"] += f"#d{int(number[:6])}"
    return answer


async def _resume(visit: Visit, run: Run) -> str:
    await batches.resumed(visit.client, run.id, tenant=None, by=visit.by, key=visit.key)
    return "retomada_sem_worker" if await visit.client.lacks_worker(run.id) else "retomada"


async def _rerun(visit: Visit, run: Run) -> str:
    """A run that stands still must end before what failed in it is made again: it goes on first."""
    try:
        made = await visit.client.rerun_failed(run.id, by=visit.by, key=visit.key)
    except AtWork:
        if run.state is not RunState.STUCK:
            raise
        await batches.resumed(visit.client, run.id, tenant=None, by=visit.by)
        return "retomada_antes"
    return "refazendo" if made.jobs else "sem_erros"


async def _cancel(visit: Visit, run: Run) -> str:
    await visit.client.cancel(run.id, by=visit.by, key=visit.key)
    return "cancelada"


async def _correct(visit: Visit, run: Run) -> str:
    code, label = _code(visit, run), visit.fields.get("rotulo", "")
    try:
        await _when_over(visit.client, run, lambda run: _labelled(visit, run, code, label))
    except InvalidInput:
        return "sem_rotulo"
    return "corrigido"


async def _confirm(visit: Visit, run: Run) -> str:
    """The model's label, as a person's."""
    code = _code(visit, run)
    shown, _ = await batches.shown_documents(visit.client, run, only=[code], limit=1)
    if not shown:
        raise NotFound(f"{code} has no label: this execution ended before it was read")
    await _when_over(visit.client, run, lambda run: _labelled(visit, run, code, shown[0]["rotulo"] or ""))
    return "confirmado"


async def _skip(visit: Visit, run: Run) -> str:
    code = _code(visit, run)
    await _when_over(
        visit.client, run, lambda run: visit.client.skip(run.id, "text", [code], by=visit.by, key=visit.key)
    )
    return "pulado"


async def _labelled(visit: Visit, run: Run, code: str, label: str) -> None:
    await batches.corrected(visit.client, run, code, label, tenant=None, by=visit.by)


async def _when_over(client: Client, run: Run, act: Callable[[Run], Awaitable[Any]]) -> None:
    """After each correction the summary is made again, which takes a moment; who corrects many need not wait for it."""
    try:
        await act(run)
    except AtWork:
        if not _is_summing_up(await batches.execution(client, run)):
            raise
        await act(await client.wait(run.id, SUMMARY_TAKES))


def _is_summing_up(seen: batches.Execution) -> bool:
    return seen.ended == seen.total


def _code(visit: Visit, run: Run) -> str:
    found = _codes(run, visit.fields.get("n", ""))
    if len(found) != 1:
        raise NotFound("there is no such document")
    return found[0]


ACTS: Mapping[str, Act] = {
    "retomar": _resume,
    "reprocessar-erros": _rerun,
    "cancelar": _cancel,
    "corrigir": _correct,
    "confirmar": _confirm,
    "pular": _skip,
}
PAGES = (
    Page(PATH, show),
    Page(f"{PATH}/partes", parts),
    *(Page(f"{PATH}/{name}", act=_acting(act)) for name, act in ACTS.items()),
)
