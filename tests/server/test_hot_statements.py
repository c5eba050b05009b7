"""Database statements of requests read only their own rows, however large the history is."""

from __future__ import annotations

import asyncio
from typing import Any
from uuid import UUID

import pytest

from retoma import Pipeline
from retoma.engine.api_keys import hash_secret
from retoma.errors import Conflict
from retoma.states import RunState
from retoma.store import runs
from retoma.store.database import Connection
from retoma.store.runs import RunFilter
from retoma.store.statements import Statement, statements
from retoma.testing import Sandbox
from tests.conftest import OpenSandbox
from tests.engine.test_hot_statements import FEW, TABLES, Table, measure_reads, prepare_history
from tests.server.api import Api


@pytest.mark.parametrize("table", TABLES)
async def test_a_key_is_found_without_reading_others(open_sandbox: OpenSandbox, table: Table) -> None:
    async with prepare_history(open_sandbox, table) as (sandbox, _, connection):
        made = await sandbox.client.api_keys.create("one", ["runs:read"])
        await sandbox.client.api_keys.find_by_secret(made.secret)
        async with measure_reads(connection) as read:
            await connection.fetch(statements("api_keys")["use_key"].sql, hash_secret(made.secret))
    assert "jobs" not in read.whole_tables
    assert "runs" not in read.whole_tables


@pytest.mark.parametrize(
    "asked",
    [{"tenant": "small"}, {"states": [RunState.FAILED]}, {"states": [RunState.RUNNING]}, {"pipelines": ["rare"]}],
    ids=lambda asked: next(iter(asked)),
)
async def test_a_list_of_few_runs_reads_few(open_sandbox: OpenSandbox, asked: dict[str, Any]) -> None:
    rare = Pipeline("rare")

    @rare.step
    def one() -> int:
        return 1

    async with prepare_history(open_sandbox, "analysed", rare) as (sandbox, _, connection):
        run = (await sandbox.client.start("rare", tenant="small")).id
        async with measure_reads(connection) as read:
            found = await list_runs(sandbox, connection, **asked)
        unfinished = await connection.fetchval("select count(*) from retoma.runs where ended_at is null")
    assert found == ([] if asked.get("states") == [RunState.FAILED] else [run])
    assert "runs" not in read.whole_tables
    assert sum(read.entries.values()) <= FEW + (unfinished if asked.get("states") == [RunState.RUNNING] else 0)


async def list_runs(sandbox: Sandbox, connection: Connection, **requested: Any) -> list[UUID]:
    """List runs as the client does, on this connection."""

    async def fetch(statement: Statement, **given: Any) -> list[Any]:
        return list(await connection.fetch(statement.sql, *statement.bind(given)))

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(sandbox.database, "fetch", fetch)
        if "tenant" in requested:
            name = requested.pop("tenant")
            requested["tenants"] = [await connection.fetchval("select id from retoma.tenants where name = $1", name)]
        return [run.id for run in await runs.list_runs(sandbox.database, RunFilter(**requested))]


@pytest.mark.parametrize("children", [0, 3])
async def test_the_children_of_a_run_are_found_without_reading_others(open_sandbox: OpenSandbox, children: int) -> None:
    async with prepare_history(open_sandbox, "analysed") as (sandbox, _, connection):
        parent = (await sandbox.client.start("labels")).id
        await connection.execute(
            "update retoma.runs r set parent = row(case when n <= $2 then $1 else gen_random_uuid() end, 'a', '', 1) "
            "from (select id, row_number() over (order by id) as n from retoma.runs where id <> $1) c "
            "where r.id = c.id",
            parent,
            children,
        )
        await connection.execute("analyze retoma.runs")
        count, charges = statements("runs")["count_children"], statements("charges")["sum_charges"]
        totals = {
            "by": ["step"],
            "run": parent,
            "tenants": None,
            "since": None,
            "until": None,
            "pipeline": None,
            "limit": 10,
        }
        async with measure_reads(connection) as read:
            found = await list_runs(sandbox, connection, parent=parent)
            counts = await connection.fetch(count.sql, *count.bind({"run": parent, "tenants": None}))
            await connection.fetch(charges.sql, *charges.bind(totals))
    assert len(found) == sum(row["runs"] for row in counts) == children
    assert "runs" not in read.whole_tables
    # As nothing was charged, the planner may start with the charges and look up no child for the third statement.
    assert read.entries.get("runs_by_parent", 0) in (2 * children, 3 * children)
    assert sum(read.entries.values()) <= FEW


async def test_the_errors_of_a_run_are_found_among_its_own_events(open_sandbox: OpenSandbox) -> None:
    async with prepare_history(open_sandbox, "analysed") as (sandbox, _, connection):
        run = (await sandbox.client.start("labels")).id
        await connection.execute(
            "insert into retoma.events (run, at, revision, attempt, kind, step, item, data) "
            "select case when n <= 20 then $1 else gen_random_uuid() end, now(), 1, n, 'failure', 'label', n % 5, '{}' "
            "from generate_series(1, 8000) n",
            run,
        )
        await connection.execute("analyze retoma.events")
        names = ("list_last_errors", "count_errors", "get_last_failure")
        errors, count, last = (statements("runs")[name] for name in names)
        body = {"run": run, "through": None, "limit": 3, "with_stack": False}
        async with measure_reads(connection) as read:
            found = await connection.fetch(errors.sql, *errors.bind(body))
            jobs = await connection.fetchval(count.sql, run)
            await connection.fetch(last.sql, run, 1)
    assert [(row["item"], row["attempt"]) for row in found] == [("0", 20), ("1", 16), ("2", 17)]
    assert jobs == 5
    assert 40 <= read.entries["events_by_run"] <= sum(read.entries.values()) <= FEW


async def test_two_of_many_concurrent_creations_of_a_key_with_one_name_succeed(api: Api) -> None:
    made = await asyncio.gather(
        *(api.client.api_keys.create("n8n", ["runs:read"], tenant="blog") for _ in range(8)), return_exceptions=True
    )
    assert sum(not isinstance(one, BaseException) for one in made) in (1, 2)
    assert all(isinstance(one, Conflict) for one in made if isinstance(one, BaseException))
    assert len(await api.client.api_keys.list(tenant="blog")) == sum(not isinstance(one, BaseException) for one in made)


async def test_the_filter_of_a_bulk_action_is_inlined(open_sandbox: OpenSandbox) -> None:
    """A call for each run would take ten seconds for 100,000 of them, which is as long as a statement may take."""
    async with prepare_history(open_sandbox, "analysed") as (_, _, connection):
        plan = await connection.fetch(
            "explain select r.id from retoma.runs r where r.ended_at is null "
            "and retoma.matches_bulk_filter(r, 1, array['running'], null, array[1], 'summer')"
        )
    assert "matches" not in " ".join(line[0] for line in plan)
