"""Titles of runs: computed from the inputs at the start, and searchable."""

from __future__ import annotations

import logging
from typing import Any
from uuid import UUID

import pytest
from pydantic import BaseModel

from retoma import Pipeline
from retoma.client import run_queries
from retoma.define.title import Title
from retoma.errors import Conflict
from retoma.store.database import DedicatedConnection
from retoma.store.runs import RunFilter
from retoma.store.statements import statements
from retoma.store.tenants import as_filter
from retoma.testing import Sandbox
from tests.conftest import OpenSandbox
from tests.engine.builders import rows
from tests.engine.test_hot_statements import FEW, measure_reads

WHY = "the pipeline's title function failed; the runs have no title"


class Brief(BaseModel):
    topic: str = "tea"
    words: int = 100


async def test_a_run_has_the_title_computed_by_its_pipeline(open_sandbox: OpenSandbox) -> None:
    pipeline = make_article("On {topic}")
    async with open_sandbox(pipeline) as sandbox:
        run = (await sandbox.client.start(pipeline, {"topic": "coffee"})).id
        assert (await sandbox.client.runs.get(run)).title == "On coffee"
        assert (await sandbox.client.runs.get(run)).about == "On coffee"
        assert [one.title for one in await sandbox.client.runs.list()] == ["On coffee"]


async def test_a_run_of_a_pipeline_without_a_title_has_none(open_sandbox: OpenSandbox) -> None:
    pipeline = make_article(None)
    async with open_sandbox(pipeline) as sandbox:
        run = (await sandbox.client.start(pipeline, {"topic": "coffee"})).id
        assert (await sandbox.client.runs.get(run)).title is None
        assert (await sandbox.client.runs.get(run)).about == "coffee"


async def test_each_of_many_runs_has_its_own_title(open_sandbox: OpenSandbox) -> None:
    pipeline = make_article(lambda brief: brief.topic or None)
    async with open_sandbox(pipeline) as sandbox:
        started = await sandbox.client.start_many(pipeline, [{"topic": topic} for topic in ("tea", "", "milk")])
        keyed = await sandbox.client.start_many(pipeline, [{"topic": topic} for topic in ("rye", "oat")], key="grain")
        assert await titles(sandbox, *(one.id for one in (*started, *keyed))) == ["tea", None, "milk", "rye", "oat"]


async def test_a_key_keeps_the_title_of_its_first_start(open_sandbox: OpenSandbox) -> None:
    numbers = iter(range(10))
    pipeline = make_article(lambda brief: f"{brief.topic} {next(numbers)}")
    async with open_sandbox(pipeline) as sandbox:
        first = await sandbox.client.start(pipeline, {"topic": "tea"}, key="one")
        again = await sandbox.client.start(pipeline, {"topic": "tea"}, key="one")
        assert (again.id, again.created) == (first.id, False)
        with pytest.raises(Conflict):
            await sandbox.client.start(pipeline, {"topic": "milk"}, key="one")
        assert await titles(sandbox, first.id) == ["tea 0"]


async def test_a_fork_has_the_title_of_its_changed_input(open_sandbox: OpenSandbox) -> None:
    pipeline = make_article("On {topic}")
    async with open_sandbox(pipeline) as sandbox:
        run = (await sandbox.client.start(pipeline, {"topic": "coffee"})).id
        await sandbox.work()
        changed = await sandbox.client.runs.fork(run, {"topic": "tea"}, key="fork")
        assert (await sandbox.client.runs.fork(run, {"topic": "tea"}, key="fork")).id == changed.id
        assert await titles(sandbox, run, changed.id) == ["On coffee", "On tea"]


async def test_a_title_that_fails_starts_the_run_and_is_logged(
    open_sandbox: OpenSandbox, caplog: pytest.LogCaptureFixture
) -> None:
    pipeline = make_article(lambda brief: 1 / 0)  # type: ignore[arg-type]
    async with open_sandbox(pipeline) as sandbox:
        with caplog.at_level(logging.WARNING, "retoma.titles"):
            run = (await sandbox.client.start(pipeline)).id
            many = await sandbox.client.start_many(pipeline, [{}] * 20)
        assert set(await titles(sandbox, run, *(one.id for one in many))) == {None}
    assert [record.getMessage() for record in caplog.records] == [
        f'title_failed  {WHY}  pipeline=article runs=1 error="division by zero"',
        f'title_failed  {WHY}  pipeline=article runs=20 error="division by zero"',
    ]


async def test_a_hostile_title_is_stored_as_plain_text(open_sandbox: OpenSandbox) -> None:
    pipeline = make_article("{topic}")
    async with open_sandbox(pipeline) as sandbox:
        run = (await sandbox.client.start(pipeline, {"topic": "'; drop table runs;\x1b[2J\u202e--\n{words}" * 50})).id
        (title,) = await titles(sandbox, run)
    assert title is not None
    assert title.startswith("'; drop table runs;[2J-- {words}'; drop")
    assert len(title) == 200


async def test_starts_without_titles_send_none(open_sandbox: OpenSandbox, monkeypatch: pytest.MonkeyPatch) -> None:
    sent: list[list[Any]] = []
    fetch = DedicatedConnection.fetch

    async def spy(link: DedicatedConnection, statement: Any, values: list[Any], *more: Any) -> Any:
        if statement.name == "start_runs":
            sent.append(values)
        return await fetch(link, statement, values, *more)

    monkeypatch.setattr(DedicatedConnection, "fetch", spy)
    plain, titled = make_article(None), make_article("{topic}", "titled")
    async with open_sandbox(plain, titled) as sandbox:
        await sandbox.client.start_many(plain, [{}] * 3)
        await sandbox.client.start_many(titled, [{}] * 3)
    assert [values[-2] for values in sent] == [(), ("tea", "tea", "tea")]


async def test_a_run_is_found_by_a_part_of_its_title(open_sandbox: OpenSandbox) -> None:
    pipeline = make_article("{topic}")
    async with open_sandbox(pipeline) as sandbox:
        green, black, percent = [
            (await sandbox.client.start(pipeline, {"topic": topic})).id for topic in ("Green tea", "Black TEA", "50%_")
        ]
        find = sandbox.client.runs.find_by_title
        assert await find(" tea ") == [black, green]
        assert await find("tea", limit=1) == [black]
        assert await find("%_") == [percent]
        assert await find("t%a") == []
        assert await find("") == await find("\x00") == await find("x" * 1_000) == []


async def test_a_text_within_a_word_is_found_in_the_newest_runs(
    open_sandbox: OpenSandbox, monkeypatch: pytest.MonkeyPatch
) -> None:
    pipeline = make_article("{topic}")
    monkeypatch.setattr(run_queries, "MAX_TITLES_SEARCHED", 3)
    async with open_sandbox(pipeline) as sandbox:
        await sandbox.client.start(pipeline, {"topic": "iced tea"})
        await sandbox.client.start_many(pipeline, [{"topic": "milk"}] * 2)
        assert len(await sandbox.client.runs.find_by_title("ed tea")) == 1
        await sandbox.client.start(pipeline, {"topic": "milk"})
        assert await sandbox.client.runs.find_by_title("ed tea") == []


@pytest.mark.parametrize("text", ["Iced", "ICED T", "tea, no", "tea", "NO s", "no sugar (2%)", "2%)", "café"])
async def test_a_text_at_the_start_of_a_word_is_found_in_any_run(
    open_sandbox: OpenSandbox, monkeypatch: pytest.MonkeyPatch, text: str
) -> None:
    pipeline = make_article("{topic}")
    monkeypatch.setattr(run_queries, "MAX_TITLES_SEARCHED", 1)
    async with open_sandbox(pipeline) as sandbox:
        old = (await sandbox.client.start(pipeline, {"topic": "Iced tea, no sugar (2%) or Café"})).id
        await sandbox.client.start(pipeline, {"topic": "tea no iced sugar 2 caf"}, tenant="other")
        await sandbox.client.start(pipeline, {"topic": "milk"})
        assert old in await sandbox.client.runs.find_by_title(text)
        assert [run.id for run in await sandbox.client.runs.list(title=text, tenant="default")] == [old]
        assert await sandbox.client.runs.list(title=text, tenant="default", before=old) == []


async def test_words_in_another_order_are_not_found(open_sandbox: OpenSandbox, monkeypatch: pytest.MonkeyPatch) -> None:
    pipeline = make_article("{topic}")
    monkeypatch.setattr(run_queries, "MAX_TITLES_SEARCHED", 1)
    async with open_sandbox(pipeline) as sandbox:
        await sandbox.client.start_many(pipeline, [{"topic": "iced tea"}, {"topic": "milk"}])
        assert await sandbox.client.runs.find_by_title("tea iced") == []


async def test_old_and_new_titles_are_listed_once_and_newest_first(
    open_sandbox: OpenSandbox, monkeypatch: pytest.MonkeyPatch
) -> None:
    pipeline = make_article("{topic}")
    monkeypatch.setattr(run_queries, "MAX_TITLES_SEARCHED", 2)
    async with open_sandbox(pipeline) as sandbox:
        runs = [(await sandbox.client.start(pipeline, {"topic": topic})).id for topic in ("tea", "tea", "milk", "tea")]
        first, second, _, last = runs
        find = sandbox.client.runs.find_by_title
        assert await find("tea") == [last, second, first]
        assert await find("tea", limit=2) == [last, second]
        listed = await sandbox.client.runs.list(title="tea", limit=2, before=last)
        assert [run.id for run in listed] == [second, first]


@pytest.mark.parametrize("analysed", [True, False])
async def test_a_search_by_words_reads_only_the_runs_that_match(open_sandbox: OpenSandbox, analysed: bool) -> None:
    pipeline = make_article("{topic}")
    async with open_sandbox(pipeline) as sandbox:
        await sandbox.client.start_many(pipeline, [{"topic": f"tea {number}"} for number in range(3_000)])
        statement = statements("runs")["list_runs"]
        wanted = {"by": "title words", **vars(RunFilter(title="tea 1234")), **as_filter(None)}
        async with sandbox.database.connection() as connection:
            await connection.execute("vacuum analyze retoma.runs" if analysed else "vacuum retoma.runs")
            async with connection.transaction(), measure_reads(connection) as read:
                assert len(await connection.fetch(statement.sql, *statement.bind(wanted))) == 1
    assert "runs" not in read.whole_tables
    assert read.entries["runs_by_title_words"] <= FEW
    assert sum(read.entries.values()) <= FEW


@pytest.mark.parametrize(("tenant", "index"), [(None, "runs_pkey"), (1, "runs_by_tenant")])
async def test_a_search_for_a_title_reads_the_newest_runs_by_an_index(
    open_sandbox: OpenSandbox, tenant: int | None, index: str
) -> None:
    pipeline = make_article("{topic}")
    async with open_sandbox(pipeline) as sandbox:
        await sandbox.client.start_many(pipeline, [{"topic": f"tea {number}"} for number in range(200)])
        statement, wanted = statements("runs")["list_runs"], RunFilter(title="tea", depth=20)
        async with sandbox.database.connection() as connection:
            await connection.execute("analyze retoma.runs")
            await connection.execute("set enable_seqscan = off")
            values = statement.bind({"by": "title", **vars(wanted), "tenant": tenant})
            plan = await connection.fetch(f"explain {statement.sql}", *values)
    assert any(f"using {index} on runs n" in row[0] for row in plan), plan


async def titles(sandbox: Sandbox, *runs: UUID) -> list[str | None]:
    """In the order of these runs."""
    found = {row["id"]: row["title"] for row in await rows(sandbox, "select id, title from retoma.runs")}
    return [found[run] for run in runs]


def make_article(title: Title | None, name: str = "article") -> Pipeline:
    pipeline = Pipeline(name, inputs=Brief, title=title)

    @pipeline.step
    async def draft(topic: str) -> str:
        return topic

    return pipeline
