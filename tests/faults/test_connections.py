"""Connections that are cut, also between a commit and its answer, or die silently; lost notifications."""

from __future__ import annotations

import asyncio
from itertools import count

import pytest

from bench.chaos.proxy import Call
from retoma.client import Client
from retoma.engine import claim_protocol
from retoma.settings import Settings
from retoma.store import database, notify
from retoma.worker.worker import Worker
from tests.faults.application import app
from tests.faults.testbed import LONG_TIMEOUT, FaultEnvironment, wait_until
from tests.wait_timeout import WAIT_TIMEOUT


async def test_a_start_whose_answer_was_lost_is_one_run(testbed: FaultEnvironment) -> None:
    answers = count()
    testbed.proxy.loses_answer = lambda call: "retoma.start_runs" in call.sql and next(answers) < 3
    client = Client(app, testbed.through)
    try:
        first, second = await asyncio.gather(
            *(client.start("chain", {"nonce": "one"}, key="one") for _ in range(2)),
        )
        unkeyed = await client.start("chain", {"nonce": "two"})
    finally:
        await client.close()
    assert testbed.proxy.lost_answers == 3
    assert first.id == second.id
    assert {run.id for run in await testbed.client.runs.list()} == {first.id, unkeyed.id}


async def test_lost_answers_of_claim_calls_use_no_attempt(testbed: FaultEnvironment) -> None:
    calls = count()
    testbed.proxy.loses_answer = lambda call: "retoma.finish_and_claim" in call.sql and next(calls) % 3 == 0
    worker = testbed.worker()
    shapes = ("chain", "album", "diamond", "film", "gallery", "parcel")
    runs = [await testbed.start(shape, shape, size=3) for shape in shapes]
    await testbed.wait_for_end(*runs)
    await wait_until(lambda: testbed.proxy.lost_answers >= 5, "it asks on, and its answers are lost")
    assert {line.attempt for line in testbed.lines} == {1}
    assert worker.list_log_events("late_outcomes_rejected") == []
    await testbed.check()


async def test_cut_connections_use_no_attempt(testbed: FaultEnvironment) -> None:
    worker = testbed.worker()
    await wait_until(lambda: worker.is_ready, "the worker is ready")
    runs = [await testbed.start("album", f"cut-{number}", size=5) for number in range(10)]
    for reset in (True, False, True):
        await wait_until(lambda: testbed.proxy.connections, "it connects again")
        testbed.proxy.cut(reset=reset)
    await testbed.wait_for_end(*runs)
    assert worker.is_running
    assert {line.attempt for line in testbed.lines} == {1}
    await testbed.check()


async def test_everything_completes_without_notifications(testbed: FaultEnvironment) -> None:
    testbed.proxy.drops_notifications = True
    worker = testbed.worker()
    await wait_until(lambda: worker.is_ready, "the worker is ready")
    await wait_until(lambda: listeners(testbed), "it listens")
    runs = [await testbed.start(shape, shape, size=2) for shape in ("chain", "album", "film", "weather")]
    await testbed.wait_for_end(*runs)
    assert testbed.proxy.dropped_notifications > 0
    await testbed.check()


async def listeners(testbed: FaultEnvironment) -> int:
    sql = "select count(*) from pg_stat_activity where datname = current_database() and query ilike 'listen %'"
    async with testbed.database.connection() as connection:
        return int(await connection.fetchval(sql))


async def test_a_connection_whose_server_announced_its_shutdown_is_replaced(testbed: FaultEnvironment) -> None:
    """The driver is confused by unexpected messages and must not be used again."""
    worker = testbed.worker()
    await wait_until(lambda: worker.is_ready, "the worker is ready")
    assert await testbed.wait_for_end(await testbed.start("diamond", "before")) == ["completed"]
    assert testbed.proxy.announce_shutdown() >= 3
    assert await testbed.wait_for_end(await testbed.start("diamond", "after")) == ["completed"]
    assert worker.is_running
    assert {line.attempt for line in testbed.lines} == {1}
    await testbed.check()


async def test_a_listener_whose_connection_died_silently_listens_again(
    testbed: FaultEnvironment, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(notify, "SECONDS_BETWEEN_CHECKS", 0.1)
    monkeypatch.setattr(notify, "CALL_TIMEOUT", 0.3)
    notified = asyncio.Event()
    listening = asyncio.create_task(notify.listen(testbed.through, notified.set))
    try:
        await asyncio.wait_for(notified.wait(), WAIT_TIMEOUT)  # it listens
        for connection in testbed.proxy.connections:
            connection.open.clear()
        notified.clear()
        await asyncio.wait_for(notified.wait(), WAIT_TIMEOUT)  # it listens on another connection
    finally:
        listening.cancel()


async def test_the_server_closes_connections_of_clients_that_vanished(testbed: FaultEnvironment) -> None:
    sql = "select reset_val::int from pg_settings where name like 'tcp_keepalives%' order by name"
    async with testbed.through.connection() as connection:
        count, idle, interval = [value for (value,) in await connection.fetch(sql)]
    assert idle + count * interval == 60


async def test_a_connection_that_died_silently_is_replaced(
    testbed: FaultEnvironment, monkeypatch: pytest.MonkeyPatch
) -> None:
    for module in (claim_protocol, database):
        monkeypatch.setattr(module, "CALL_TIMEOUT", 0.3)
    silenced: list[str] = []

    def silences(call: Call) -> bool:
        """The first answer that brings a job never arrives, and no notification is sent."""
        if "retoma.finish_and_claim" in call.sql and call.rows and not silenced:
            silenced.append(call.sql)
            for connection in testbed.proxy.connections:
                connection.open.clear()
        return False

    testbed.proxy.loses_answer = silences
    worker = Worker(app, testbed.through, Settings(heartbeat_timeout_seconds=LONG_TIMEOUT), concurrency=4)
    working = asyncio.create_task(worker.run())
    try:
        run = await testbed.start("chain", "silence")
        assert await testbed.wait_for_end(run) == ["completed"]
    finally:
        worker.stop()
        await asyncio.wait_for(working, WAIT_TIMEOUT)
    assert silenced
    assert {line.attempt for line in testbed.lines} == {1}
    await testbed.check()
