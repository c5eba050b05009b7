"""The hot statements go by their indexes and read only what they are about, however large the history is.

What is looked at is not a plan but what its execution read: rows of a whole table, and entries of each index.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from datetime import timedelta
from hashlib import sha256
from typing import Any, Literal
from uuid import UUID

import pytest

from retoma import Items, Pipeline, Pool
from retoma.engine import outcomes
from retoma.engine.claim_protocol import Claim
from retoma.engine.outcomes import AttemptError, Outcome, Success
from retoma.store.database import Connection
from retoma.store.statements import statements
from retoma.testing import Sandbox
from tests.conftest import OpenSandbox
from tests.engine.builders import RawChannel, find_claim, names, open_channel, rows

HISTORY = 8_000
FEW = 100
KEPT = ("events", "start_keys", "holdings", "reviews", "pending_reruns", "deliveries", "schedules")
LARGE = {
    "jobs",
    "runs",
    "workers",
    "versions",
    "steps",
    "edges",
    "external_work",
    "callbacks",
    "effects",
    "schedules",
    "file_names",
    "inbound_events",
    "profiles",
    "review_drafts",
    "tenant_facts",
    *KEPT,
}

Table = Literal["empty when planned", "never analysed", "analysed"]
TABLES: list[Table] = ["empty when planned", "never analysed", "analysed"]


@pytest.mark.parametrize("analysed", [False, True])
async def test_a_search_for_unnamed_files_reads_no_whole_table(open_sandbox: OpenSandbox, analysed: bool) -> None:
    """The deletion of files makes it while starts wait."""
    async with open_sandbox(labels()) as sandbox:
        await sandbox.client.tenants.set_profile("blog", {})
        async with sandbox.database.connection() as connection:
            await connection.execute(MANY_NAMED_FILES)
            if analysed:
                await connection.execute("analyze retoma.inbound_events, retoma.tenant_facts, retoma.review_drafts")
            named = [sha256(f"{kind} 7".encode()).digest() for kind in ("event", "fact", "draft")]
            async with connection.transaction(), measure_reads(connection) as read:
                found = await connection.fetch(
                    "select * from retoma.lock_files(7, $1::bytea[], '1 day')", [*named, b"unnamed"]
                )
    assert [row[0] for row in found] == [b"unnamed"]
    assert read.whole_tables == {}
    assert sum(read.entries.values()) <= FEW


MANY_NAMED_FILES = f"""
create or replace function pg_temp.named_file(text) returns json return
  format('{{"file": "%s"}}', encode(sha256($1::bytea), 'hex'))::json;
insert into retoma.inbound_events (app, stream, sequence, event_id, body, received_at)
select 'blog', 'post', n, n, pg_temp.named_file('event ' || n), retoma.now()
  from generate_series(1, {HISTORY}) n;
insert into retoma.tenant_facts (app, tenant, language, text, digest, source, confidence, search, run, created_at)
select 'blog', 1, 'en', n, sha256(n::text::bytea),
       pg_temp.named_file('fact ' || n), 1, '', gen_random_uuid(), retoma.now()
  from generate_series(1, {HISTORY}) n;
insert into retoma.review_drafts (review, person, draft, saved_at)
select gen_random_uuid(), 'Ana', pg_temp.named_file('draft ' || n), retoma.now()
  from generate_series(1, {HISTORY}) n
"""


@pytest.mark.parametrize("table", TABLES)
async def test_a_claim_reads_only_the_index_of_ready_jobs(open_sandbox: OpenSandbox, table: Table) -> None:
    async with prepare_history(open_sandbox, table) as (sandbox, channel, connection):
        await sandbox.client.start_many("labels", [None] * 5)
        async with measure_reads(connection) as read:
            claims = await call(connection, channel, limit=10)
    assert len(claims) == 10
    assert read.whole_tables == {}
    assert 10 <= read.entries["jobs_ready_by_queue"] <= FEW
    assert sum(read.entries.values()) <= FEW


async def test_finding_due_schedules_reads_only_those_that_are_due(open_sandbox: OpenSandbox) -> None:
    async with open_sandbox(labels()) as sandbox:
        due = await sandbox.client.schedules.create("due", "labels", every=60)
        await rows(sandbox, MANY_SCHEDULES, due.id, HISTORY)
        await sandbox.clock.advance(timedelta(minutes=1))
        connection = await sandbox.database.connect()
        statement = statements("schedules")["list_due_schedules"]
        try:
            await connection.execute("analyze retoma.schedules")
            async with connection.transaction(), measure_reads(connection) as read:
                found = await connection.fetch(statement.sql, *statement.bind({"pipelines": ["labels"], "limit": 500}))
        finally:
            await connection.close()
    assert [row["id"] for row in found] == [due.id]
    assert read.whole_tables == {}
    assert read.entries["schedules_by_start"] <= FEW


MANY_SCHEDULES = """
insert into retoma.schedules (tenant, name, pipeline, cron, every, time_zone, anchor_at, inputs, catch_up,
                              catch_up_limit, jitter, overlap, declared_by, next_at, starts_at, created_at,
                              changed_at, changed_by)
select s.tenant, 'later ' || n, s.pipeline, s.cron, s.every, s.time_zone, s.anchor_at, s.inputs, s.catch_up,
       s.catch_up_limit, s.jitter, s.overlap, s.declared_by, s.next_at + interval '1 day',
       s.next_at + interval '1 day', s.created_at, s.changed_at, s.changed_by
  from retoma.schedules s, generate_series(1, $2) n
 where s.id = $1
"""


@pytest.mark.parametrize("table", TABLES)
async def test_finishing_reads_only_the_primary_key(open_sandbox: OpenSandbox, table: Table) -> None:
    async with prepare_history(open_sandbox, table) as (sandbox, channel, connection):
        await sandbox.client.start("labels")
        claims = await call(connection, channel, limit=10)
        async with measure_reads(connection) as read:
            await call(
                connection,
                channel,
                [make_result(find_claim(claims, "taxonomy")), make_result(find_claim(claims, "documents"))],
            )
        items = await call(connection, channel, limit=10)
        assert names(items) == ["label:a", "label:b"]
        async with measure_reads(connection) as read_by_items:
            await call(connection, channel, [make_result(items[0]), outcomes.Failure(items[1], AttemptError("ERROR"))])
        (join,) = await call(connection, channel, limit=10)
        async with measure_reads(connection) as read_by_join:
            await call(connection, channel, [make_result(join)])
    for one_read in (read, read_by_items, read_by_join):
        assert one_read.whole_tables == {}
        assert {name for name in one_read.entries if name.startswith("jobs")} == {"jobs_pkey"}
        assert sum(one_read.entries.values()) <= FEW


@pytest.mark.parametrize("table", TABLES)
async def test_a_start_reads_nothing_of_other_runs(open_sandbox: OpenSandbox, table: Table) -> None:
    async with prepare_history(open_sandbox, table) as (sandbox, _, connection):
        (run,) = await rows(sandbox, "select * from retoma.runs limit 1")
        async with measure_reads(connection) as read:
            await connection.fetch(
                "select * from retoma.start_runs(array[gen_random_uuid()], array[$1::int], array[$2::int], "
                "array['{}'::json], array['key'], array['digest'::bytea], array[null::timestamptz], array[0::bigint], "
                "array[null::json], array[null::int], array[null::int], array[null::interval], array[null::text], "
                "false)",
                run["tenant"],
                run["version"],
            )
    assert read.whole_tables.keys() <= {"versions", "steps"}
    assert sum(read.entries.values()) <= FEW


@pytest.mark.parametrize("table", TABLES)
async def test_the_start_of_a_child_reads_only_its_job(open_sandbox: OpenSandbox, table: Table) -> None:
    async with prepare_history(open_sandbox, table) as (sandbox, channel, connection):
        await sandbox.client.start("labels")
        claim, *_ = await call(connection, channel, limit=10)
        async with measure_reads(connection) as read:
            state = await connection.fetchval(
                "select state from retoma.start_children(array[$1::int], "
                "array[($2::uuid, $3::text, $4::text, 1)::retoma.job_key], array[1], array['external'], "
                "array['find'], array['key'], array['cancel'], array['{}'::json], "
                "array[gen_random_uuid()], array[$5::int], array[$6::int], array['{}'::json], array['key'], "
                "array['digest'::bytea], array[null::text], false)",
                channel.worker,
                claim.run,
                claim.step,
                claim.item,
                claim.tenant,
                claim.version,
            )
    assert state == "started"
    assert read.whole_tables.keys() <= {"versions", "steps"}
    assert sum(read.entries.values()) <= FEW


@pytest.mark.parametrize("table", TABLES)
async def test_stopping_a_run_reads_only_that_run(open_sandbox: OpenSandbox, table: Table) -> None:
    async with prepare_history(open_sandbox, table) as (sandbox, channel, connection):
        run = (await sandbox.client.start("labels")).id
        await call(connection, channel, limit=1)
        async with measure_reads(connection) as read:
            await connection.fetch("select retoma.cancel_run($1, null, 'test')", run)
    assert read.whole_tables == {}
    assert {name for name in read.entries if name.startswith("jobs")} == {"jobs_pkey"}
    assert sum(read.entries.values()) <= FEW


@pytest.mark.parametrize("table", TABLES)
async def test_maintenance_reads_nothing_while_nothing_is_due(open_sandbox: OpenSandbox, table: Table) -> None:
    async with prepare_history(open_sandbox, table) as (_, _, connection), measure_reads(connection) as read:
        await connection.fetch("select * from retoma.release_due_jobs(100)")
        await connection.fetch("select * from retoma.reap_dead_workers('1 hour')")
    assert read.whole_tables == {}
    assert read.entries.keys() <= {"jobs_delayed", "open_runs_by_watch_at", "alive_workers"}
    assert sum(read.entries.values()) <= FEW


@pytest.mark.parametrize("table", TABLES)
async def test_a_dead_workers_jobs_are_found_among_open_runs_only(open_sandbox: OpenSandbox, table: Table) -> None:
    async with prepare_history(open_sandbox, table) as (sandbox, channel, connection):
        await sandbox.client.start("labels")
        await call(connection, channel, limit=2)
        async with measure_reads(connection) as read:
            held = await connection.fetch("select * from retoma.claimed_jobs_of_worker($1)", channel.worker)
            await connection.fetch("select retoma.deregister_worker($1, 'died', 'WORKER_DIED')", channel.worker)
    assert len(held) == 2
    assert read.whole_tables == {}
    assert read.entries["jobs_pkey"] <= FEW, "a run that has not begun has nothing that runs"


@dataclass
class Read:
    """Return what was read: rows of whole tables, and entries of indexes."""

    whole_tables: dict[str, int] = field(default_factory=dict)
    entries: dict[str, int] = field(default_factory=dict)


@pytest.mark.parametrize("table", TABLES)
async def test_a_claim_for_a_pool_reads_only_what_waits_for_it(open_sandbox: OpenSandbox, table: Table) -> None:
    pooled = Pipeline("pooled")

    @pooled.step(pool=Pool("gpu", capacity=5))
    def clip() -> int:
        return 1

    async with prepare_history(open_sandbox, table, pooled) as (sandbox, channel, connection):
        await sandbox.client.start_many("pooled", [None] * 50)
        async with measure_reads(connection) as read:
            claims = await call(connection, channel, limit=10)
    assert names(claims) == ["clip"] * 5
    assert read.whole_tables.keys() <= {"pools", "steps"}
    assert sum(read.entries.values()) <= 2 * FEW


@pytest.mark.parametrize("table", TABLES)
async def test_polls_and_callbacks_read_only_their_own_rows(open_sandbox: OpenSandbox, table: Table) -> None:
    async with prepare_history(open_sandbox, table) as (sandbox, _, connection):
        await make_external_work_history(sandbox)
        (version,) = await rows(sandbox, "select id from retoma.versions")
        async with measure_reads(connection) as read_by_poller:
            polls = await claim_due_polls(connection, version["id"])
        assert len(polls) == 3
        async with measure_reads(connection) as read_by_report:
            for due in polls:
                await connection.fetch(
                    "select retoma.record_poll($1, $2, $3, 1, $4, 'running', null, null, null, false, false)",
                    due["run"],
                    due["step"],
                    due["item"],
                    due["polls"],
                )
        async with measure_reads(connection) as read_by_callback:
            assert await connection.fetchval("select retoma.record_callback($1, '{}')", b"token-1") == "taken"
        async with measure_reads(connection) as read_by_effect:
            await connection.fetch(
                "select * from retoma.begin_effect("
                "1, $1, 'documents', '', 1, 1, 'submit', null, null, null, null, null, null)",
                polls[0]["run"],
            )
    for read in (read_by_poller, read_by_report, read_by_callback, read_by_effect):
        assert read.whole_tables == {}
        assert sum(read.entries.values()) <= FEW


@pytest.mark.parametrize("table", TABLES)
async def test_decisions_and_reruns_read_only_their_run(open_sandbox: OpenSandbox, table: Table) -> None:
    async with prepare_history(open_sandbox, table, reviewed()) as (sandbox, channel, connection):
        run = (await sandbox.client.start("reviewed")).id
        async with measure_reads(connection) as read:
            await send_back_approve_and_rerun(connection, channel, run)
    assert read.whole_tables.keys() <= {"versions", "steps", "edges"}
    assert sum(read.entries.values()) <= 10 * FEW, str(read.entries)


async def send_back_approve_and_rerun(connection: Connection, channel: RawChannel, run: UUID) -> None:
    for revision, decision in ((1, "sent_back"), (2, "approved")):
        await finish(connection, channel)
        review = await connection.fetchval(
            "select id from retoma.reviews where run = $1 and revision = $2", run, revision
        )
        outcome = await connection.fetchval(
            "select retoma.decide_review($1, null, $2::retoma.review_state, 'ana', 'test', $3, null, null, 'shorter', "
            "'{}', null, null, interval '0')",
            review,
            decision,
            revision,
        )
        assert outcome == "decided"
    await finish(connection, channel)
    await finish(connection, channel)
    await connection.fetch(
        "select * from retoma.rerun_steps($1, null, 'ana', null, array['text'], null, false, false, false, '{}')", run
    )
    await finish(connection, channel)
    await connection.fetch("select retoma.process_due_reviews(100)")


async def finish(connection: Connection, channel: RawChannel) -> None:
    """One job, as a worker runs it that reads the previous result."""
    (claim,) = await call(connection, channel, limit=1)
    key = (claim.run, claim.step, claim.item, claim.revision)
    await connection.fetch("select * from retoma.previous_work($1, $2, $3, $4)", *key)
    await call(connection, channel, [make_result(claim)])


@asynccontextmanager
async def prepare_history(
    open_sandbox: OpenSandbox, table: Table, *others: Pipeline
) -> AsyncIterator[tuple[Sandbox, RawChannel, Connection]]:
    """A history in the requested state, and one connection in one transaction that is rolled back."""
    async with open_sandbox(labels(), *others) as sandbox:
        await clear(sandbox)
        connection = await sandbox.database.connect()
        transaction = connection.transaction()
        await transaction.start()
        if table == "empty when planned":
            await plan_everything(sandbox, connection)
        await sandbox.client.runs.cancel((await sandbox.client.start("labels")).id)
        await make_history(sandbox)
        if table == "analysed":
            async with sandbox.database.connection() as other:
                await other.execute(
                    f"analyze {', '.join(f'retoma.{name}' for name in ('jobs', 'runs', 'edges', *KEPT))}"
                )
        channel = await open_channel(sandbox)
        try:
            yield sandbox, channel, connection
        finally:
            await transaction.rollback()
            await connection.close()
            await clear(sandbox)


async def clear(sandbox: Sandbox) -> None:
    """Remove all rows, with their index entries, and keep autovacuum from changing the statistics during the test."""
    tables = (
        "reviews",
        "pending_reruns",
        "external_work",
        "callbacks",
        "effects",
        "deliveries",
        "delivery_attempts",
        "run_webhooks",
        "endpoints",
        "webhook_secrets",
        "holdings",
        "pools",
        "jobs",
        "runs",
        "events",
        "start_keys",
        "worker_links",
        "workers",
        "reads",
        "edges",
        "steps",
        "versions",
        "tenants",
    )
    for table in tables:
        await rows(sandbox, f"alter table retoma.{table} set (autovacuum_enabled = false)")
    await rows(sandbox, f"truncate {', '.join(f'retoma.{table}' for table in tables)} cascade")


async def plan_everything(sandbox: Sandbox, connection: Connection) -> None:
    """Let the server plan all its statements while there is nothing, and keep those plans."""
    channel = await open_channel(sandbox)
    run = (await sandbox.client.start("labels")).id
    claims = await call(connection, channel, limit=10)
    await call(
        connection, channel, [make_result(find_claim(claims, "taxonomy")), make_result(find_claim(claims, "documents"))]
    )
    items = await call(connection, channel, limit=10)
    await call(connection, channel, [make_result(items[0]), outcomes.Failure(items[1], AttemptError("ERROR"))])
    (join,) = await call(connection, channel, limit=10)
    await connection.fetch("select * from retoma.claimed_jobs_of_worker($1)", channel.worker)
    await call(connection, channel, [make_result(join)])
    await connection.fetch("select retoma.cancel_run($1, null, 'test')", run)
    await connection.fetch("select * from retoma.release_due_jobs(100)")
    await connection.fetch("select * from retoma.reap_dead_workers('1 hour')")
    await claim_due_polls(connection, 0)
    await connection.fetch("select * from retoma.job_metrics(retoma.now() - interval '1 hour', 20000)")
    if "reviewed" in sandbox.app.pipelines:
        other = (await sandbox.client.start("reviewed")).id
        await send_back_approve_and_rerun(connection, channel, other)
        await connection.fetch("select retoma.cancel_run($1, null, 'test')", other)
    await connection.fetch("select retoma.deregister_worker($1, 'died', 'WORKER_DIED')", channel.worker)


async def make_history(sandbox: Sandbox) -> None:
    """Ended runs with their jobs and all that is kept of them, and runs of much later."""
    await rows(
        sandbox,
        """
        with one as (select * from retoma.runs limit 1), created as (
          insert into retoma.runs (id, tenant, version, state, open_sinks, input, created_at, run_at, ended_at)
          select gen_random_uuid(), tenant, version,
                 case when number % 4 = 0 then 'pending' else 'completed' end::retoma.run_state, 0, input, created_at,
                 run_at, case when number % 4 > 0 then run_at end
            from one, generate_series(1, $1::int / 4) as number
          returning id, tenant, version, ended_at)
        insert into retoma.jobs (run, step, revision, version, tenant, queue, rank, state, worker, ready_at, created_at)
        select id, step, 1, version, tenant, 'default', number,
               case when ended_at is null then 'ready' else 'succeeded' end::retoma.job_state,
               case when ended_at is not null then 0 end,
               case when ended_at is null then retoma.now() + interval '1 year' end, retoma.now()
          from created, unnest(array['documents', 'taxonomy', 'label', 'report']) with ordinality as s (step, number)
        """,
        HISTORY,
    )
    await rows(
        sandbox,
        """
        with pool as (
          insert into retoma.pools (name, declared, capacity, tokens, tokens_at)
          values ('old', '{}', 1000000, 0, retoma.now())
        ), events as (
          insert into retoma.events (run, at, revision, kind)
          select id, created_at, 1, kind from retoma.runs, unnest(array['start', 'end']) as kind
        ), keys as (
          insert into retoma.start_keys (tenant, pipeline, key, run, digest, created_at)
          select tenant, 'labels', id::text, id, '', created_at from retoma.runs
        ), held as (
          insert into retoma.holdings (run, step, item, revision, pool, slots)
          select id, 'label', '', 1, 'old', 1 from retoma.runs
        ), requested as (
          insert into retoma.reviews (run, step, item, revision, version, tenant, planned, state, opened_at,
                                      decided_by, ended_at)
          select id, 'label', '', 1, version, tenant, true, 'approved', created_at, 'ana', created_at from retoma.runs
        ), made_anew as (
          insert into retoma.pending_reruns (run, revision, step, item) select id, 2, 'label', '' from retoma.runs
        )
        insert into retoma.deliveries (run, endpoint, seq, tenant, pipeline, host, event, schedule, state, next_at,
                                       created_at, ended_at)
        select id, 1, 1, tenant, 'labels', 'https://old.example.com', 'run.ended', 'standard', 'delivered', created_at,
               created_at, created_at
          from retoma.runs
        """,
    )


async def make_external_work_history(sandbox: Sandbox) -> None:
    """Ended external work, work that is not polled yet, and three pieces that are due."""
    await rows(
        sandbox,
        """
        with chosen as (
          select j.*, row_number() over () as number from retoma.jobs j where j.step = 'documents'
        ), tokens as (
          insert into retoma.callbacks (token_hash, run, step, item, revision, expires_at)
          select convert_to('token-' || number, 'UTF8'), run, step, item, revision, retoma.now() + interval '1 day'
            from chosen
        ), effects as (
          insert into retoma.effects (run, step, item, revision, name, version, fence, begun_at, done_at, value)
          select run, step, item, revision, 'submit', version, 1, retoma.now(), retoma.now(), '1' from chosen
        )
        insert into retoma.external_work (run, step, item, revision, version, external_id, poll_interval, total_timeout,
                                          next_at, parked_at, state, ended_at)
        select run, step, item, revision, version, '1', '1 minute', '1 hour',
               retoma.now() + case when number <= 3 then interval '0' else interval '1 minute' end, retoma.now(),
               case when number > 3 and number % 4 > 0 then 'succeeded' else 'queued' end,
               case when number > 3 and number % 4 > 0 then retoma.now() end
          from chosen
        """,
    )


async def claim_due_polls(connection: Connection, version: int) -> list[Any]:
    return await connection.fetch("select * from retoma.poll_due(array[$1::int], 100, '1 minute')", version)


@asynccontextmanager
async def measure_reads(connection: Connection) -> AsyncIterator[Read]:
    before = await counters(connection)
    read = Read()
    yield read
    for (kind, name), count in (await counters(connection)).items():
        difference = count - before.get((kind, name), 0)
        if difference and kind == "r" and name in LARGE:
            read.whole_tables[name] = difference
        elif difference and kind == "i":
            read.entries[name] = difference


async def counters(connection: Connection) -> dict[tuple[str, str], int]:
    """Of this connection's transaction. The count of a table is of the rows read by going through all of it."""
    found = await connection.fetch(
        """
        select relkind::text, relname::text, pg_stat_get_xact_tuples_returned(oid)
          from pg_class
         where relnamespace = 'retoma'::regnamespace and relkind in ('r', 'i')
        """
    )
    return {(kind, name): count for kind, name, count in found}


async def call(
    connection: Connection, channel: RawChannel, outcomes: Sequence[Outcome] = (), limit: int = 0
) -> list[Claim]:
    answer = await connection.fetch(
        statements("engine_calls")["finish_and_claim"].sql, *channel.next_call(outcomes, limit=limit)
    )
    return [Claim(row[3:8], *row[3:]) for row in answer if row["what"] in ("claimed", "kept")]


def make_result(claim: Claim) -> Success:
    results: dict[str, tuple[Any, dict[str, str] | None]] = {"documents": ('["a", "b"]', {"a": '"a"', "b": '"b"'})}
    output, items = results.get(claim.step, ('"result"', None))
    return Success(claim, output, items)


def reviewed() -> Pipeline:
    pipeline = Pipeline("reviewed")

    @pipeline.step
    async def text() -> str:
        return "text"

    pipeline.review("approved", of=text)

    @pipeline.step
    async def page(approved: str) -> str:
        return approved

    return pipeline


def labels() -> Pipeline:
    pipeline = Pipeline("labels")

    @pipeline.step
    async def documents() -> list[str]:
        return ["a", "b"]

    @pipeline.step
    async def taxonomy() -> str:
        return "tax"

    @pipeline.each(documents)
    async def label(document: str, taxonomy: str) -> str:
        return f"{document} {taxonomy}"

    @pipeline.step
    async def report(label: Items[str]) -> str:
        return "report"

    return pipeline
