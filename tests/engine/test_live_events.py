"""Events read as they happen: none is missed and none comes twice, in whatever order their transactions end."""

from __future__ import annotations

from uuid import UUID

import asyncpg

from retoma import Pipeline
from retoma.engine.live_events import LiveEventReader
from retoma.store import event_stream
from retoma.testing import Sandbox
from tests.conftest import OpenSandbox


def make_pipeline() -> Pipeline:
    pipeline = Pipeline("tea")

    @pipeline.step
    def cup() -> int:
        return 1

    return pipeline


async def write(connection: asyncpg.Connection, run: UUID, kind: str = "action") -> int:
    sql = "insert into retoma.events (run, at, revision, kind) values ($1, retoma.now(), 1, $2) returning id"
    number: int = await connection.fetchval(sql, run, kind)
    return number


async def reader_of(sandbox: Sandbox) -> LiveEventReader:
    reader = LiveEventReader(sandbox.database)
    await reader.start()
    return reader


async def test_an_event_waits_for_one_with_a_lower_number_that_commits_later(open_sandbox: OpenSandbox) -> None:
    async with open_sandbox(make_pipeline()) as sandbox:
        run = (await sandbox.client.start("tea")).id
        reader = await reader_of(sandbox)
        slow, quick = await sandbox.database.connect(), await sandbox.database.connect()
        try:
            transaction = slow.transaction()
            await transaction.start()
            lower = await write(slow, run)
            higher = await write(quick, run)
            assert [await reader.read() for _ in range(3)] == [[], [], []]
            await transaction.commit()
            found = await reader.read() + await reader.read()
        finally:
            await slow.close()
            await quick.close()
        assert [event.id for event in found] == [lower, higher]
        assert await reader.read() == []


async def test_a_rolled_back_transaction_does_not_delay_readers_for_ever(open_sandbox: OpenSandbox) -> None:
    async with open_sandbox(make_pipeline()) as sandbox:
        run = (await sandbox.client.start("tea")).id
        reader = await reader_of(sandbox)
        slow, quick = await sandbox.database.connect(), await sandbox.database.connect()
        try:
            transaction = slow.transaction()
            await transaction.start()
            await write(slow, run)
            higher = await write(quick, run)
            assert await reader.read() == []
            await transaction.rollback()
            found = await reader.read() + await reader.read()
        finally:
            await slow.close()
            await quick.close()
        assert [event.id for event in found] == [higher]


async def test_a_reader_starts_where_no_lower_number_can_appear(
    open_sandbox: OpenSandbox,
) -> None:
    """Earlier events are history, which contains all of them."""
    async with open_sandbox(make_pipeline()) as sandbox:
        run = (await sandbox.client.start("tea")).id
        writer = await sandbox.database.connect()
        try:
            async with writer.transaction():
                number = await write(writer, run)
                mark = await event_stream.advance_mark(sandbox.database, event_stream.NO_MARK)
                assert mark.writers
                assert (await event_stream.advance_mark(sandbox.database, mark)).settled is None
        finally:
            await writer.close()
        reader = await reader_of(sandbox)
        assert reader.through >= number
        assert number in [event.id for event in await reader.read_history(0, reader.through, run=run)]


async def test_the_very_first_event_is_read_too(open_sandbox: OpenSandbox) -> None:
    async with open_sandbox(make_pipeline()) as sandbox:
        async with sandbox.database.connection() as connection:
            await connection.execute("alter sequence retoma.events_id_seq restart")
        reader = await reader_of(sandbox)
        assert reader.through == 0
        run = (await sandbox.client.start("tea")).id
        assert [(event.id, event.run, event.kind) for event in await reader.read()] == [(1, run, "start")]


async def test_more_events_than_one_read_returns_arrive_in_order(open_sandbox: OpenSandbox) -> None:
    async with open_sandbox(make_pipeline()) as sandbox:
        run = (await sandbox.client.start("tea")).id
        reader = await reader_of(sandbox)
        async with sandbox.database.connection() as connection:
            await connection.execute(
                "insert into retoma.events (run, at, revision, kind) "
                "select $1, retoma.now(), 1, 'action' from generate_series(1, 2500)",
                run,
            )
        parts = [await reader.read() for _ in range(4)]
        numbers = [event.id for part in parts for event in part]
        assert [len(part) for part in parts] == [1000, 1000, 500, 0]
        assert numbers == sorted(set(numbers))


async def test_the_stack_trace_of_an_error_is_omitted_unless_requested(open_sandbox: OpenSandbox) -> None:
    pipeline = Pipeline("tea")

    @pipeline.step(on_failure="continue")
    def cup() -> int:
        raise ValueError("no water")

    async with open_sandbox(pipeline) as sandbox:
        reader = await reader_of(sandbox)
        await sandbox.run(pipeline)
        found = [event for event in await reader.read() if event.kind == "failure"]
        assert [event.data.keys() for event in found] == [{"code", "type", "message"}]


async def test_new_events_are_found_by_their_number(open_sandbox: OpenSandbox) -> None:
    async with open_sandbox(make_pipeline()) as sandbox, sandbox.database.connection() as connection:
        await connection.execute("set enable_seqscan = off")
        try:
            plan = await connection.fetch(
                "explain select * from retoma.events where id > 100 and id <= 200 order by id limit 10"
            )
        finally:
            await connection.execute("reset enable_seqscan")
        assert any("events_by_id" in row[0] for row in plan)
