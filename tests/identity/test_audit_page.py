"""The page of the audit log: for administrators, with filters in its address, and an export of what it shows."""

from __future__ import annotations

import csv
import io
import json

import pytest

from retoma.records import Actor, ActorKind, Role
from retoma.server.pages import audit
from tests.server.conftest import OpenApi
from tests.server.pages.visitor import OpenPages, Visitor, visible_text, visit_pages
from tests.server.people import add_person

FORMULA = '=HYPERLINK("//evil")<script>alert(1)</script>'


@pytest.fixture
def open_pages(open_api: OpenApi) -> OpenPages:
    return visit_pages(open_api)


async def act(visitor: Visitor) -> None:
    """Start a run in each of two tenants, each by another person."""
    for number, (name, tenant) in enumerate((("Rita", "blog"), (FORMULA, "shop"))):
        client = visitor.client.acting_as(Actor(ActorKind.PERSON, str(number), name, "203.0.113.5"))
        await client.start("film", tenant=tenant)


async def test_the_filters_are_in_the_address(open_pages: OpenPages) -> None:
    async with open_pages() as visitor:
        await act(visitor)
        everything = visible_text(await visitor.get("/audit"))
        assert "Run: Started" in everything
        assert "203.0.113.5" in everything
        assert (await visitor.get("/audit?actor=Rita")).text.count('id="entry-') == 1
        assert (await visitor.get("/audit?action=run&tenant=shop")).text.count('id="entry-') == 1
        assert (await visitor.get("/audit?since=2030-01-01&until=2030-01-01")).text.count('id="entry-') == 2
        assert "No matching entries" in visible_text(await visitor.get("/audit?until=2029-12-31"))
        assert (await visitor.get("/audit?since=soon&before=x")).status_code == 200


async def test_names_are_escaped_on_the_page_and_in_the_export(open_pages: OpenPages) -> None:
    async with open_pages() as visitor:
        await act(visitor)
        assert "<script>alert" not in (await visitor.get("/audit")).text
        rows = list(csv.DictReader(io.StringIO((await visitor.get("/audit.csv?tenant=shop")).text)))
        assert [row["actor_name"] for row in rows] == [f"'{FORMULA}"]


async def test_an_export_has_every_entry_that_the_filter_shows(
    open_pages: OpenPages, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(audit, "EXPORT_PAGE_SIZE", 2)
    async with open_pages() as visitor:
        for _ in range(2):
            await act(visitor)
        answer = await visitor.get("/audit.jsonl?action=run")
        assert "attachment" in answer.headers["content-disposition"]
        entries = [json.loads(line) for line in answer.text.splitlines()]
        assert [entry["action"] for entry in entries] == ["run.start"] * 4
        assert len({entry["id"] for entry in entries}) == 4
        assert (await visitor.get("/audit.csv?action=run")).text.count("run.start") == 4


async def test_an_administrator_of_a_tenant_sees_its_entries_only(open_pages: OpenPages) -> None:
    async with open_pages(development=False) as visitor:
        await act(visitor)
        await add_person(visitor.client, "bo@example.com", Role.ADMINISTRATOR, "blog")
        await visitor.log_in(email="bo@example.com")
        shown = visible_text(await visitor.get("/audit"))
        assert "Rita" in shown
        assert "HYPERLINK" not in shown
        for path in ("/audit.csv", "/audit.jsonl", "/audit?tenant=shop"):
            assert "HYPERLINK" not in (await visitor.get(path)).text


async def test_the_log_is_not_for_operators(open_pages: OpenPages) -> None:
    async with open_pages(development=False) as visitor:
        await add_person(visitor.client, "bo@example.com", Role.OPERATOR)
        await visitor.log_in(email="bo@example.com")
        for path in ("/audit", "/audit.csv", "/audit.jsonl"):
            assert (await visitor.get(path)).status_code == 403
        assert 'href="/audit"' not in (await visitor.get("/")).text
