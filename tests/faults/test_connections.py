"""Connections that are cut, also between a commit and its answer, or die in silence; notifications that get lost."""

from __future__ import annotations

import asyncio
from itertools import count

import pytest

from bench.chaos.proxy import Call
from retoma.client import Client
from retoma.engine import exchange
from retoma.settings import Settings
from retoma.store import database
from retoma.worker.worker import Worker
from tests.faults.application import app
from tests.faults.stage import SOON, Stage, until
from tests.patience import PATIENCE


async def test_a_start_whose_answer_was_lost_is_one_run(stage: Stage) -> None:
    answers = count()
    stage.proxy.loses_answer = lambda call: "retoma.start_runs" in call.sql and next(answers) < 3
    client = Client(app, stage.through)
    try:
        first, second = await asyncio.gather(
            *(client.start("chain", {"nonce": "one"}, key="one") for _ in range(2)),
        )
        unkeyed = await client.start("chain", {"nonce": "two"})
    finally:
        await client.close()
    assert stage.proxy.lost_answers == 3
    assert first.id == second.id
    assert {run.id for run in await stage.client.runs()} == {first.id, unkeyed.id}


async def test_answers_of_exchanges_that_are_lost_cost_no_attempt(stage: Stage) -> None:
    calls = count()
    stage.proxy.loses_answer = lambda call: "retoma.exchange" in call.sql and next(calls) % 3 == 0
    worker = stage.worker()
    shapes = ("chain", "album", "diamond", "film", "gallery", "parcel")
    runs = [await stage.start(shape, shape, size=3) for shape in shapes]
    await stage.ended(*runs)
    await until(lambda: stage.proxy.lost_answers >= 5, "it asks on, and its answers are lost")
    assert {line.attempt for line in stage.lines} == {1}
    assert worker.said("refused") == []
    await stage.check()


async def test_cut_connections_cost_no_attempt(stage: Stage) -> None:
    worker = stage.worker()
    await until(lambda: worker.is_ready, "the worker is ready")
    runs = [await stage.start("album", f"cut-{number}", size=5) for number in range(10)]
    for reset in (True, False, True):
        await until(lambda: stage.proxy.connections, "it connects again")
        stage.proxy.cut(reset=reset)
    await stage.ended(*runs)
    assert worker.lives
    assert {line.attempt for line in stage.lines} == {1}
    await stage.check()


async def test_everything_ends_without_notifications(stage: Stage) -> None:
    stage.proxy.drops_notifications = True
    worker = stage.worker()
    await until(lambda: worker.is_ready, "the worker is ready")
    await until(lambda: listeners(stage), "it listens")
    runs = [await stage.start(shape, shape, size=2) for shape in ("chain", "album", "film", "weather")]
    await stage.ended(*runs)
    assert stage.proxy.dropped_notifications > 0
    await stage.check()


async def listeners(stage: Stage) -> int:
    sql = "select count(*) from pg_stat_activity where datname = current_database() and query ilike 'listen %'"
    async with stage.database.connection() as connection:
        return int(await connection.fetchval(sql))


async def test_a_connection_is_replaced_whose_server_said_that_it_ends(stage: Stage) -> None:
    """The driver is confused by words that answer nothing, and must not be asked again."""
    worker = stage.worker()
    await until(lambda: worker.is_ready, "the worker is ready")
    assert await stage.ended(await stage.start("diamond", "before")) == ["completed"]
    assert stage.proxy.last_words() >= 3
    assert await stage.ended(await stage.start("diamond", "after")) == ["completed"]
    assert worker.lives
    assert {line.attempt for line in stage.lines} == {1}
    await stage.check()


async def test_a_connection_that_died_in_silence_is_replaced(stage: Stage, monkeypatch: pytest.MonkeyPatch) -> None:
    for module in (exchange, database):
        monkeypatch.setattr(module, "PATIENCE", 0.3)
    silenced: list[str] = []

    def silences(call: Call) -> bool:
        """The first answer that brings a job never comes, and nobody is told."""
        if "retoma.exchange" in call.sql and call.rows and not silenced:
            silenced.append(call.sql)
            for connection in stage.proxy.connections:
                connection.open.clear()
        return False

    stage.proxy.loses_answer = silences
    worker = Worker(app, stage.through, Settings(silence_seconds=SOON), concurrency=4)
    working = asyncio.create_task(worker.run())
    try:
        run = await stage.start("chain", "silence")
        assert await stage.ended(run) == ["completed"]
    finally:
        worker.stop()
        await asyncio.wait_for(working, PATIENCE)
    assert silenced
    assert {line.attempt for line in stage.lines} == {1}
    await stage.check()
