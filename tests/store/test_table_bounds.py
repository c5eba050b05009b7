"""No table grows without bound: a page says what bounds each, and what it says is tried here with rows in that table.

A row belongs to a run and goes with it, or it is deleted once it is old, or it is one of the last ones that are kept.
Of the other tables, each row has a key of things that people, the code or the running work define.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from datetime import timedelta
from pathlib import Path
from typing import Any
from uuid import UUID, uuid4

import pytest

from retoma import Pipeline, Pool
from retoma.engine.retention import remove_due
from retoma.settings import RetentionTimes
from retoma.store import metrics, notifications, retention
from retoma.store.database import Connection, Database
from retoma.store.statements import statements
from retoma.testing import Sandbox
from tests.conftest import OpenSandbox
from tests.engine.builders import HEARTBEAT_TIMEOUT

CLOCK_OF_TESTS = "clock"
PAGE = Path(__file__).parents[2] / "docs" / "retention.md"
DAY = timedelta(days=1)
LONG_AGO = "retoma.now() - interval '20 years'"
DIGEST = "decode(repeat('ab', 32), 'hex')"
RUN, REVIEW, DELIVERY = "'{run}'", "'{review}'", "'{delivery}'"

OF_RUNS: dict[str, dict[str, str]] = {
    "reviews": {"id": REVIEW},
    "action_keys": {"subject": RUN},
    "attempt_providers": {},
    "budget_reservations": {},
    "callbacks": {},
    "charges": {},
    "comment_resolutions": {"review": REVIEW},
    "deliveries": {"id": DELIVERY, "state": "'delivered'", "ended_at": "retoma.now()"},
    "delivery_attempts": {"delivery": DELIVERY},
    "effects": {},
    "events": {},
    "external_work": {"state": "'succeeded'", "ended_at": "retoma.now()"},
    "file_names": {},
    "holdings": {"pool": "'gpu'"},
    "jobs": {},
    "pending_reruns": {},
    "pending_webhook_events": {},
    "review_drafts": {"review": REVIEW},
    "run_webhooks": {},
    "runs": {},
    "stuck_runs": {},
}
"""The tables whose rows go with their run, with what a row needs beside the run."""

OLD: dict[str, dict[str, str]] = {
    "account_links": {"expires_at": LONG_AGO},
    "api_keys": {"revoked_at": LONG_AGO},
    "audit_log": {"at": LONG_AGO},
    "budget_warnings": {"starts_at": LONG_AGO, "warned_at": LONG_AGO},
    "bulk_actions": {"created_at": LONG_AGO, "ended_at": LONG_AGO},
    "charge_sums": {"quarter": LONG_AGO},
    "delivery_ends": {},
    "inbound_events": {"received_at": LONG_AGO},
    "inbound_streams": {"removed_at": LONG_AGO},
    "notification_messages": {"ended_at": LONG_AGO},
    "notifications": {"ended_at": LONG_AGO},
    "person_sessions": {"used_at": LONG_AGO},
    "queue_samples": {"at": LONG_AGO},
    "removed_decisions": {"decided_at": LONG_AGO},
    "review_batches": {"created_at": LONG_AGO},
    "review_drafts": {"saved_at": LONG_AGO},
    "run_removals": {"day": f"({LONG_AGO})::date"},
    "servers": {"heartbeat_at": LONG_AGO},
    "start_keys": {"created_at": LONG_AGO},
    "tenant_files": {"granted_at": LONG_AGO, "digest": DIGEST},
    "workers": {"ended_at": LONG_AGO},
}
"""The tables whose rows are deleted after a time, with what makes a row old."""

VALID: dict[str, dict[str, str]] = {
    "account_links": {"purpose": "'invite'"},
    "audit_log": {"actor_kind": "'system'"},
    "budget_warnings": {"level": "'near'"},
    "bulk_actions": {"kind": "'redeliver'"},
    "notification_messages": {"channel": "'email'", "state": "'sent'", "ended_at": "retoma.now()"},
    "notifications": {"channel": "'email'"},
    "restores": {"outbox": "'hold'"},
    "run_removals": {"cause": "'expired'"},
    "run_webhooks": {"schedule": "'short'"},
    "schedule_occurrences": {"reason": "'missed'"},
}
"""What the constraints of a table need."""

FRESH = {
    "tenant_files": {"tenant": "(select max(id) from retoma.tenants)", "digest": DIGEST, "granted_at": "retoma.now()"}
}
"""What a row needs that is not old."""

LAST = {"backups": "taken_at", "restores": "restored_at", "schedule_occurrences": "due_at"}
"""The tables of which the last 1,000 rows are kept, with their time."""

KEYS: dict[str, tuple[str, ...]] = {
    "budgets": ("tenant", "pipeline", "period"),
    "bulk_targets": ("action", "number"),
    "charge_rollups": ("tenant", "hour", "pipeline", "step", "provider", "resource"),
    "connections": ("tenant", "service", "account"),
    "edges": ("version", "from_step", "to_step", "edge_kind", "via"),
    "endpoints": ("tenant", "url"),
    "metric_counters": ("pipeline", "what", "outcome", "bucket"),
    "migrations": ("number",),
    "notification_channels": ("channel",),
    "notification_preferences": ("person", "channel"),
    "people": ("email",),
    "person_roles": ("person", "tenant"),
    "pools": ("name",),
    "prices": ("provider", "resource", "version"),
    "profiles": ("app", "tenant"),
    "queue_slots": ("queue", "run", "step", "item", "revision"),
    "queues": ("name",),
    "reads": ("version", "step", "position"),
    "recovery_codes": ("person", "digest"),
    "retention_progress": ("only_row",),
    "retention_rules": ("pipeline", "tenant", "final_class"),
    "run_holds": ("run",),
    "schedule_counters": ("pipeline", "outcome"),
    "schedules": ("tenant", "name"),
    "sessions": ("digest",),
    "signing_keys": ("purpose",),
    "steps": ("version", "step"),
    "tenant_facts": ("app", "tenant", "language", "digest"),
    "tenants": ("name",),
    "transitions": ("entity", "from_state", "to_state"),
    "versions": ("pipeline", "digest"),
    "viewer_settings": ("person",),
    "webhook_secrets": ("tenant", "host"),
    "worker_links": ("worker", "link", "call_block"),
    "worker_stacks": ("worker",),
}
"""The other tables, with the key of which each value has at most one row."""

ONE_ROW = {"functions", "metric_cursor", "trace_cursor"}


async def list_tables(database: Database) -> list[str]:
    async with database.connection() as connection:
        found = await connection.fetch(
            "select relname from pg_class where relnamespace = 'retoma'::regnamespace and relkind in ('r', 'p')"
        )
    return sorted(row["relname"] for row in found if row["relname"] != CLOCK_OF_TESTS)


async def test_every_table_says_what_bounds_it(database: Database) -> None:
    section = PAGE.read_text(encoding="utf-8").partition("## What bounds each table")[2]
    assert await list_tables(database) == re.findall(r"^\| `(\w+)` \| \S", section, re.MULTILINE)


async def test_every_table_is_tried_here(database: Database) -> None:
    assert await list_tables(database) == sorted({*OF_RUNS, *OLD, *LAST, *KEYS, *ONE_ROW})


async def test_the_rows_of_a_run_are_removed_with_it(open_sandbox: OpenSandbox) -> None:
    async with open_sandbox(build_pipeline()) as sandbox:
        run = (await sandbox.run("order")).id
        named: dict[str, UUID] = {"run": run, "review": uuid4(), "delivery": uuid4()}
        async with sandbox.database.connection() as connection:
            for table, values in OF_RUNS.items():
                columns = await list_columns(connection, table)
                given = {column: value.format(**named) for column, value in values.items()}
                if "run" in columns:
                    given["run"] = RUN.format(**named)
                if not await is_filled(connection, table):
                    await insert_row(connection, table, columns, given)
            assert [table for table in OF_RUNS if not await is_filled(connection, table)] == []
            assert await connection.fetchval("select retoma.remove_runs(array[$1::uuid], 'erased')", run) == [run]
            assert [table for table in OF_RUNS if await is_filled(connection, table)] == []


async def test_old_rows_are_deleted_and_others_are_kept(open_sandbox: OpenSandbox) -> None:
    async with open_sandbox(build_pipeline()) as sandbox:
        async with sandbox.database.connection() as connection:
            await insert_row(connection, "people", await list_columns(connection, "people"), {})
            await insert_row(connection, "tenants", await list_columns(connection, "tenants"), {}, 2)
            before = {table: await count_rows(connection, table) for table in OLD}
            for table, values in OLD.items():
                columns = await list_columns(connection, table)
                await insert_row(connection, table, columns, values)
                await insert_row(connection, table, columns, FRESH.get(table, {}))
            assert {table: await count_rows(connection, table) - before[table] for table in OLD} == dict.fromkeys(
                OLD, 2
            )
        await delete_old(sandbox)
        async with sandbox.database.connection() as connection:
            left = {table: await count_rows(connection, table) - before[table] for table in OLD}
        added = {**dict.fromkeys(REPLACED, 1), "inbound_streams": 1, "queue_samples": 1, "delivery_ends": -1}
        assert left == {table: 1 + added.get(table, 0) for table in OLD}


@pytest.mark.parametrize("table", LAST)
async def test_only_the_last_1000_are_kept(open_sandbox: OpenSandbox, table: str) -> None:
    async with open_sandbox(build_pipeline()) as sandbox, sandbox.database.connection() as connection:
        columns = await list_columns(connection, table)
        schedule = await sandbox.client.schedules.create("daily", "order", every=60)
        await insert_row(connection, table, columns, {LAST[table]: "retoma.now() - n * interval '1 day'"}, 1_003)
        await remove_due(sandbox.database, RetentionTimes(), at_once=True)
        await connection.execute(
            "select retoma.record_occurrence($1, retoma.now(), '', 1, null, null, 'missed', null, 1000)", schedule.id
        )
        assert await count_rows(connection, table) == 1_000


@pytest.mark.parametrize(("table", "key"), KEYS.items())
async def test_a_value_of_the_key_has_one_row(database: Database, table: str, key: tuple[str, ...]) -> None:
    async with database.connection() as connection:
        assert list(key) in [row["columns"] for row in await connection.fetch(UNIQUE, f"retoma.{table}")]


async def test_some_tables_have_one_row(database: Database) -> None:
    async with database.connection() as connection:
        assert {table: await count_rows(connection, table) for table in ONE_ROW} == dict.fromkeys(ONE_ROW, 1)


UNIQUE = """
select array(select a.attname::text from unnest(i.indkey) with ordinality k (number, position)
               join pg_attribute a on a.attrelid = i.indrelid and a.attnum = k.number order by k.position) as columns
  from pg_index i
 where i.indrelid = $1::regclass and i.indisunique and i.indpred is null
"""


REPLACED: dict[str, tuple[str, str, dict[str, Any]]] = {
    "person_sessions": (
        *("person_sessions", "add_session"),
        {"digest": b"new", "person": 7, "address": "", "user_agent": "", "longest": 30 * DAY, "idle": 7 * DAY},
    ),
    "review_batches": ("inbox", "save_batch", {"batch": UUID(int=7), "person": "Ana", "outcomes": "{}"}),
    "review_drafts": ("inbox", "save_draft", {"review": UUID(int=7), "person": "Ana", "draft": "{}"}),
    "servers": ("servers", "send_server_heartbeat", {"server": UUID(int=7), "allow_hosts": [], "public_url": ""}),
}
"""The tables whose old rows are deleted when a new one is added, with the statement that adds one."""


async def delete_old(sandbox: Sandbox) -> None:
    """Do all that deletes old rows, once."""
    database = sandbox.database
    await remove_due(database, RetentionTimes(), at_once=True)
    await notifications.delete_old(database, 100)
    await metrics.update_counters(database)
    await metrics.sample_queues(database, HEARTBEAT_TIMEOUT)
    await retention.count_deleted_files(database, ["ab" * 32], 1, DAY)
    async with database.connection() as connection:
        person = await connection.fetchval("select id from retoma.people")
        for noun, name, values in REPLACED.values():
            statement = statements(noun)[name]
            await connection.fetch(
                statement.sql, *statement.bind(values | {"person": person} if "digest" in values else values)
            )


def build_pipeline() -> Pipeline:
    pipeline = Pipeline("order")

    @pipeline.step(pool=Pool("gpu", 1))
    async def done() -> str:
        return "done"

    return pipeline


async def is_filled(connection: Connection, table: str) -> bool:
    return await count_rows(connection, table) > 0


async def count_rows(connection: Connection, table: str) -> int:
    return int(await connection.fetchval(f"select count(*) from retoma.{table}"))


async def list_columns(connection: Connection, table: str) -> dict[str, str | None]:
    """Return the columns of a table, each with a value that it needs: None if it has a default, or may be null."""
    return {row["name"]: row["value"] for row in await connection.fetch(COLUMNS, f"retoma.{table}")}


COLUMNS = """
select a.attname as name,
       case when a.attnotnull and not a.atthasdef and a.attidentity = '' then
         case when f.confrelid is not null then format('(select min(%I) from %s)', k.attname, f.confrelid::regclass)
              when t.typtype = 'e' then (select quote_literal(min(enumlabel)) from pg_enum where enumtypid = t.oid)
              when t.typcategory = 'A' or t.typname in ('json', 'jsonb') then quote_literal('{}')
              when t.typname = 'uuid' then 'gen_random_uuid()'
              when t.typname = 'bytea' then 'sha256(gen_random_uuid()::text::bytea)'
              when t.typname in ('timestamptz', 'date') then 'retoma.now()'
              when t.typname = 'interval' then quote_literal('1 day')
              when t.typname = 'bool' then 'false'
              when t.typcategory = 'N' then '1'
              else 'gen_random_uuid()::text' end end as value
  from pg_attribute a
  join pg_type t on t.oid = a.atttypid
  left join pg_constraint f on f.contype = 'f' and f.conrelid = a.attrelid and f.conkey = array[a.attnum]
  left join pg_attribute k on k.attrelid = f.confrelid and k.attnum = f.confkey[1]
 where a.attrelid = $1::regclass and a.attnum > 0 and not a.attisdropped
"""


async def insert_row(
    connection: Connection, table: str, columns: Mapping[str, str | None], given: Mapping[str, str], times: int = 1
) -> None:
    """Insert a row with these values and those that its columns need."""
    values = {name: value for name, value in columns.items() if value is not None} | VALID.get(table, {}) | dict(given)
    await connection.execute(
        f"insert into retoma.{table} ({', '.join(values)}) "
        f"select {', '.join(values.values())} from generate_series(1, {times}) n"
    )
