"""CSV files become articles, line by line."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import timedelta
from functools import partial
from pathlib import Path
from typing import Any
from uuid import UUID

import asyncpg
import pytest

from retoma.files import FileSettings, create_file_store
from retoma.store.database import Database
from retoma_apps.autowriter import services
from retoma_apps.autowriter.operations import imports, overview
from retoma_apps.autowriter.pages.imports import LINES_PER_PAGE
from retoma_apps.autowriter.pipeline import LLM_POOL
from retoma_apps.autowriter.steps.csv_file import MAX_ROWS, ParsedFile, parse_csv
from retoma_apps.providers.llm.errors import LlmUnavailable
from tests.apps.autowriter.samples import HEADER, LINE, REQUEST, make_request
from tests.apps.autowriter.writer_app import COST, WriterApp
from tests.server.pages.visitor import Visitor, visible_text

OTHER_LINE = LINE.replace("400", "390")
FEW = 10  # statements that loops of the server may send meanwhile
IMPORT_STEPS = ("lines_found", "csv_parsed", "article_requested")


async def upload(writer_app: WriterApp, text: str, path: str = "", **query: Any) -> tuple[int, dict[str, Any]]:
    answer = await writer_app.api.post(
        f"/autowriter/imports{path}", content=text.encode(), params=query, headers={"Content-Type": "text/csv"}
    )
    return answer.status_code, dict(answer.json())


async def show(writer_app: WriterApp, shown: dict[str, Any]) -> dict[str, Any]:
    answer = await writer_app.api.get(f"/autowriter/imports/{shown['import_id']}")
    return dict(answer.json())


async def list_articles(writer_app: WriterApp) -> list[dict[str, Any]]:
    return list((await writer_app.api.get("/autowriter/jobs")).json()["jobs"])


async def test_a_key_for_one_blog_imports_articles_of_that_blog_only(writer_app: WriterApp) -> None:
    await writer_app.client.tenants.set_profile("cozinha", {"name": "Cozinha"})
    for path in ("", "/preview"):
        answers = {}
        for tenant in ("saude", "cozinha"):
            key = await writer_app.api.make_key("runs:read", "runs:write", tenant=tenant, name=f"{tenant} {path}")
            file = f"{HEADER}\n{LINE}\n".encode()
            answers[tenant] = await writer_app.api.post(f"/autowriter/imports{path}", content=file, key=key)
        own, other = answers["saude"].json(), answers["cozinha"].json()
        refused = other["errors"] if path else other["lines"]
        assert [each["code"] for each in refused] == ["BLOG_NOT_FOUND"]
    (run,) = await writer_app.client.runs.list(pipeline="article_import")
    assert (run.tenant, own["valid"]) == ("saude", 1)


async def test_each_line_becomes_an_article_of_its_blog(writer_app: WriterApp) -> None:
    await writer_app.client.tenants.set_profile("cozinha", {"name": "Cozinha"})
    text = f"{HEADER}\n{LINE}\n{OTHER_LINE.replace('saude', 'cozinha')}\n"
    status, started = await upload(writer_app, text)
    assert status == 202
    await writer_app.work()
    shown = await show(writer_app, started)
    assert (shown["state"], shown["lines"]) == ("completed", {"succeeded": 2})
    articles = await list_articles(writer_app)
    assert {(each["blog_id"], each["state"]) for each in articles} == {("saude", "done"), ("cozinha", "done")}
    assert len(await writer_app.list_drafts("cozinha")) == 1
    parsed = (await writer_app.get_results(UUID(started["import_id"])))["csv_parsed"]
    assert list(parsed) == ["2", "3"]
    assert parsed["2"] == {**REQUEST, "keyword": "", "category": "", "audience": "", "tone": ""}


async def test_a_file_with_errors_starts_nothing_and_names_each_line(writer_app: WriterApp) -> None:
    text = f"{HEADER}\n{LINE}\noutro,Café,explicar,pt,400\nsaude,Café,explicar,pt,nove\n"
    status, problem = await upload(writer_app, text)
    assert (status, problem["code"]) == (422, "CSV_INVALID")
    assert [(each["line"], each["code"]) for each in problem["lines"]] == [(3, "BLOG_NOT_FOUND"), (4, "CSV_INVALID")]
    assert await list_articles(writer_app) == []


async def test_the_valid_lines_of_a_file_with_errors_can_be_imported(writer_app: WriterApp) -> None:
    text = f"{HEADER}\noutro,Café,explicar,pt,400\n{LINE}\n"
    status, started = await upload(writer_app, text, skip_invalid=True)
    assert (status, started["skipped_lines"]) == (202, [2])
    await writer_app.work()
    assert [each["state"] for each in await list_articles(writer_app)] == ["done"]


async def test_a_preview_starts_nothing(writer_app: WriterApp) -> None:
    status, preview = await upload(writer_app, f"{HEADER}\n{LINE}\nsaude,x\n", "/preview")
    assert (status, preview["valid"]) == (200, 1)
    assert preview["articles"][0]["line"] == 2
    assert [each["line"] for each in preview["errors"]] == [3]
    assert await writer_app.client.runs.list() == []


async def test_the_same_line_again_is_the_same_article(writer_app: WriterApp) -> None:
    text = f"{HEADER}\n{LINE}\n{LINE}\n"
    for _ in range(2):
        _, started = await upload(writer_app, text)
        await writer_app.work()
        assert (await show(writer_app, started))["lines"] == {"succeeded": 2}
    assert len(await list_articles(writer_app)) == 1
    assert len(writer_app.blog.sent) == 1


async def test_an_article_that_was_requested_before_is_awaited(writer_app: WriterApp) -> None:
    run = await writer_app.start()
    _, started = await upload(writer_app, f"{HEADER}\n{LINE}\n")
    await writer_app.work()
    assert (await show(writer_app, started))["state"] == "completed"
    assert [each["job_id"] for each in await list_articles(writer_app)] == [str(run)]


async def test_two_lines_of_one_article_with_other_columns_are_refused(writer_app: WriterApp) -> None:
    status, problem = await upload(writer_app, f"{HEADER},tone\n{LINE},leve\n{LINE},sério\n")
    assert status == 422
    assert problem["lines"] == [
        {"line": 3, "code": "CSV_INVALID", "message": "this is the article of line 2 with other optional columns"}
    ]


async def test_a_line_regenerates_its_article_once_per_import(writer_app: WriterApp) -> None:
    run = (await writer_app.write()).id
    content = f"{HEADER},regenerate\n{LINE},yes\n".encode()
    for key, revision in (("monday", 2), ("monday", 2), ("tuesday", 3)):
        headers = {"Content-Type": "text/csv", "Idempotency-Key": key}
        answer = await writer_app.api.post("/autowriter/imports", content=content, headers=headers)
        assert answer.status_code == 202
        await writer_app.work()
        assert (await writer_app.show(run))["revision"] == revision
    (draft,) = await writer_app.list_drafts()
    assert draft["revision"] == 3


async def test_lines_regenerate_only_articles_that_were_finished_before_the_import(writer_app: WriterApp) -> None:
    in_progress = await writer_app.start()
    lines = "\n".join(f"{line},yes" for line in (LINE, OTHER_LINE, OTHER_LINE))
    _, started = await upload(writer_app, f"{HEADER},regenerate\n{lines}\n")
    await writer_app.api.sandbox.clock.advance(timedelta(seconds=1))
    await writer_app.work()
    assert (await show(writer_app, started))["lines"] == {"succeeded": 3}
    articles = {each["job_id"]: each["revision"] for each in await list_articles(writer_app)}
    assert (articles[str(in_progress)], sorted(articles.values())) == (1, [1, 1])


async def test_two_lines_of_one_article_regenerate_it_once(writer_app: WriterApp) -> None:
    run = (await writer_app.write()).id
    await upload(writer_app, f"{HEADER},regenerate\n{LINE},yes\n{LINE},yes\n")
    await writer_app.work()
    assert (await writer_app.show(run))["revision"] == 2


async def test_a_line_regenerates_a_failed_article(writer_app: WriterApp) -> None:
    writer_app.writer.errors = [LlmUnavailable("no answer")] * 3
    run = (await writer_app.write()).id
    assert await writer_app.get_state(run) == "failed"
    _, started = await upload(writer_app, f"{HEADER},regenerate\n{LINE},yes\n")
    await writer_app.work()
    assert (await show(writer_app, started))["lines"] == {"succeeded": 1}
    assert await writer_app.get_state(run) == "done"


async def test_a_line_cannot_regenerate_an_article_that_a_person_ended(writer_app: WriterApp) -> None:
    run = await writer_app.start()
    await writer_app.client.runs.cancel(run, by="ana")
    _, started = await upload(writer_app, f"{HEADER},regenerate\n{LINE},yes\n")
    await writer_app.work()
    assert (await show(writer_app, started))["lines"] == {"failed": 1}
    assert await writer_app.get_state(run) == "canceled"


async def test_accepting_a_file_makes_no_call_for_each_line(
    writer_app: WriterApp, monkeypatch: pytest.MonkeyPatch
) -> None:
    calls = {}
    for count in (1, 50):
        lines = "\n".join(f"{LINE.replace('400', str(number))},yes" for number in range(400, 400 + count))
        with count_statements(monkeypatch) as statements:
            status, _ = await upload(writer_app, f"{HEADER},regenerate\n{lines}\n")
        assert status == 202
        calls[count] = len(statements)
    assert calls[50] <= calls[1]


@contextmanager
def count_statements(monkeypatch: pytest.MonkeyPatch) -> Iterator[list[str]]:
    """List the statements that are sent to the database meanwhile."""
    statements: list[str] = []
    connection: Any = asyncpg.Connection
    original = connection._execute

    async def execute(self: Any, query: Any, *args: Any, **options: Any) -> Any:
        statements.append(str(query))
        return await original(self, query, *args, **options)

    with monkeypatch.context() as patch:
        patch.setattr(connection, "_execute", execute)
        yield statements


async def test_an_import_shows_the_cost_of_the_articles_that_it_started(writer_app: WriterApp) -> None:
    await writer_app.write()  # it was paid for before
    _, started = await upload(writer_app, f"{HEADER}\n{LINE}\n{OTHER_LINE}\n")
    assert started["cost_micros"] == 0
    await writer_app.work()
    cost = 9 * COST
    assert (await show(writer_app, started))["cost_micros"] == cost
    visitor = Visitor(writer_app.api)
    await visitor.log_in()
    page = visible_text(await visitor.get(f"/articles/imports/{started['import_id']}"))
    assert f"US$ {cost / 1_000_000:.4f}".rstrip("0") in " ".join(page.split())


async def test_a_failed_article_fails_its_line_and_no_other(writer_app: WriterApp) -> None:
    text = f"{HEADER}\n{LINE}\n{LINE.replace('Café e cafeína', 'Direito civil')}\n"
    _, started = await upload(writer_app, text)
    await writer_app.work()
    shown = await show(writer_app, started)
    assert (shown["state"], shown["lines"]) == ("completed_with_errors", {"succeeded": 1, "failed": 1})


async def test_cancelling_an_import_cancels_its_articles(writer_app: WriterApp) -> None:
    _, started = await upload(writer_app, f"{HEADER}\n{LINE}\n{OTHER_LINE}\n")
    async with writer_app.api.sandbox.manual_worker() as worker:
        for _ in range(3):
            claims = [claim for claim in await worker.claim(100) if claim.step in IMPORT_STEPS]
            await worker.record_outcomes(await worker.attempt(claims))
    assert [each["state"] for each in await list_articles(writer_app)] == ["pending", "pending"]
    answer = await writer_app.api.post(f"/autowriter/imports/{started['import_id']}/cancel")
    assert answer.status_code == 200
    async with writer_app.api.sandbox.manual_worker() as worker:
        await worker.poll_external_work()  # a worker does so within a second
    await writer_app.work()
    assert [each["state"] for each in await list_articles(writer_app)] == ["canceled", "canceled"]
    assert (await show(writer_app, started))["state"] == "cancelled"


async def test_every_accepted_line_ends_published_failed_canceled_or_in_need_of_review(writer_app: WriterApp) -> None:
    kinds = (LINE, LINE.replace("Café e cafeína", "Direito civil"), LINE.replace("400", "600"))
    lines = [kinds[number % 3].replace("explicar", f"explicar {number}:") for number in range(90)]
    status, started = await upload(writer_app, "\n".join([HEADER, *lines]))
    assert (status, started["skipped_lines"]) == (202, [])
    await writer_app.work()
    in_review = (await writer_app.api.get("/autowriter/jobs?state=needs_review&limit=100")).json()["jobs"]
    for each in in_review[:10]:
        await writer_app.api.post(f"/autowriter/jobs/{each['job_id']}/cancel")
    await writer_app.work()
    articles = (await writer_app.api.get("/autowriter/jobs?limit=100")).json()["jobs"]
    assert Counter(each["state"] for each in articles) == {"done": 30, "failed": 30, "needs_review": 20, "canceled": 10}
    assert len(await writer_app.list_drafts()) == 30


@pytest.fixture
def calls(monkeypatch: pytest.MonkeyPatch) -> Counter[str]:
    """What is done from now on: statements sent to the database, and files parsed by the server and by workers."""
    counted: Counter[str] = Counter()
    run, connection = Database._run_with_retries, Database.connection

    def count_run(self: Database, call: Any) -> Any:
        counted["statements"] += 1
        return run(self, call)

    def count_connection(self: Database) -> Any:
        counted["statements"] += 1
        return connection(self)

    def count_parsing(by: str, content: bytes) -> ParsedFile:
        counted[by] += 1
        return parse_csv(content)

    monkeypatch.setattr(Database, "_run_with_retries", count_run)
    monkeypatch.setattr(Database, "connection", count_connection)
    monkeypatch.setattr(imports, "parse_csv", partial(count_parsing, "parsed by the server"))
    monkeypatch.setattr(services, "parse_csv", partial(count_parsing, "parsed by workers"))
    return counted


async def test_five_thousand_lines_are_accepted_and_shown_with_as_few_statements_as_two(
    writer_app: WriterApp, calls: Counter[str]
) -> None:
    counts = []
    for number in (1, 2, MAX_ROWS):  # the first one also registers the pipelines
        calls.clear()
        status, started = await upload(writer_app, make_file(number))
        assert status == 202
        await show(writer_app, started)
        counts.append(dict(calls))
    assert counts[1]["parsed by the server"] == counts[2]["parsed by the server"] == 1
    assert counts[2]["statements"] <= counts[1]["statements"] + FEW
    assert counts[2]["parsed by the server"] == 1


async def test_a_worker_parses_a_file_once_for_all_its_lines(writer_app: WriterApp, calls: Counter[str]) -> None:
    _, started = await upload(writer_app, make_file(MAX_ROWS))
    async with writer_app.api.sandbox.manual_worker() as worker:
        await worker.record_outcomes(await worker.attempt(await worker.claim(1)))
        for _ in range(10):
            await worker.record_outcomes(await worker.attempt(await worker.claim(500)))
    assert sum((await show(writer_app, started))["lines"].values()) == MAX_ROWS
    assert calls["parsed by workers"] == 1


async def test_lists_are_shown_with_as_few_statements_among_many_articles(
    writer_app: WriterApp, calls: Counter[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(overview, "_BATCH_SIZE", 100)
    visitor = Visitor(writer_app.api)
    await visitor.log_in()
    running = str(await writer_app.start(make_request(theme="Café e chá")))
    async with writer_app.api.sandbox.manual_worker() as worker:
        await worker.record_outcomes(await worker.attempt(await worker.claim(1)))
    await writer_app.client.pools.update(LLM_POOL.name, capacity=0)  # the other articles stay pending
    counts = []
    for number in (LINES_PER_PAGE + 1, 220):
        _, started = await upload(writer_app, make_file(number))
        await start_articles(writer_app, number)
        await visitor.get("/articles/")  # it measures the metrics, which it keeps for a while
        counted = []
        for show, path in (
            (writer_app.api.get, "/autowriter/jobs?state=running"),
            (visitor.get, "/articles/?state=running"),
            (visitor.get, f"/articles/imports/{started['import_id']}"),
            (writer_app.api.get, f"/autowriter/imports/{started['import_id']}"),
        ):
            calls.clear()
            answer = await show(path)
            assert answer.status_code == 200
            counted.append(calls["statements"])
        counts.append(counted)
        found = (await writer_app.api.get("/autowriter/jobs?state=running")).json()
        assert ([each["job_id"] for each in found["jobs"]], found["next"]) == ([running], None)
    assert all(many <= few + FEW for few, many in zip(*counts, strict=True)), counts


async def start_articles(writer_app: WriterApp, lines: int) -> None:
    """Do the steps of an import, of which the last one starts the articles."""
    async with writer_app.api.sandbox.manual_worker() as worker:
        done = 0
        while done < 1 + 2 * lines:
            claims = await worker.claim(500)
            await worker.record_outcomes(await worker.attempt(claims))
            done += len(claims)


def make_file(lines: int) -> str:
    return "\n".join([HEADER, *(LINE.replace("cafeína", f"cafeína {number}") for number in range(lines))])


async def test_imports_that_take_turns_parse_each_file_once(tmp_path: Path, calls: Counter[str]) -> None:
    store = create_file_store(FileSettings(home=tmp_path))
    import_files = services.ImportFiles(store)
    files = [await store.save(make_file(number).encode(), name="a.csv") for number in range(1, 7)]
    for _ in range(3):
        for number, file in enumerate(files, 1):
            assert len(await import_files.get_lines(file)) == number
    assert calls["parsed by workers"] == len(files)
