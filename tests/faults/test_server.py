"""PostgreSQL is killed with -9 while runs are started and worked on."""

from __future__ import annotations

import asyncio
import tempfile
from collections.abc import Iterator
from functools import partial
from pathlib import Path
from uuid import UUID

import pytest

from bench.chaos import fake_provider
from bench.chaos.processes import Postgres
from retoma.client import Client
from retoma.errors import DatabaseUnavailable
from retoma.settings import Settings
from retoma.store.database import Database
from tests.faults.application import answer_file, app, poll_marker
from tests.faults.testbed import LONG_TIMEOUT, FaultEnvironment, open_testbed, wait_until

KILLS = 2
USERS = 12


@pytest.fixture
def postgres() -> Iterator[Postgres]:
    with tempfile.TemporaryDirectory(prefix="retoma-faults-") as home:
        Path(home).chmod(0o755)  # the server may run as another user
        made = Postgres(Path(home))
        made.start()
        yield made
        made.stop()


async def test_no_acknowledged_run_is_lost_and_no_worker_exits(postgres: Postgres, tmp_path: Path) -> None:
    async with await Database.open(Settings(database_url=postgres.url_by(postgres.port))) as database:
        await database.upgrade()
        async with open_testbed(database, tmp_path) as testbed:
            await kill_under_load(testbed, postgres)


async def test_external_work_continues_while_the_database_is_killed(postgres: Postgres, folder: Path) -> None:
    async with await Database.open(Settings(database_url=postgres.url_by(postgres.port))) as database:
        await database.upgrade()
        async with open_testbed(database, folder) as testbed:
            await kill_while_parked(testbed, postgres)


async def kill_while_parked(testbed: FaultEnvironment, postgres: Postgres) -> None:
    worker = testbed.worker(heartbeat_timeout=LONG_TIMEOUT)
    run = await testbed.start("outsourced", "parked")
    await wait_until(lambda: poll_marker("parked", worker.pid).exists(), "it is looked at")
    before = postgres.pid
    postgres.kill()
    await wait_until(partial(is_another, postgres, before), "the server is started again")
    await wait_until(partial(answers, testbed), "the server answers")
    (bench,) = await testbed.client.pools.list("bench")
    assert bench.used == 1
    answer_file("parked").write_text("succeeded")
    assert await testbed.wait_for_end(run) == ["completed"]
    (job,) = await testbed.client.runs.list_jobs(run)
    assert (job.attempt, len(fake_provider.list_work(testbed.folder)), worker.is_running) == (1, 1, True)
    await testbed.check()


async def kill_under_load(testbed: FaultEnvironment, postgres: Postgres) -> None:
    fleet = [testbed.worker(heartbeat_timeout=LONG_TIMEOUT) for _ in range(2)]
    await wait_until(lambda: all(worker.is_ready for worker in fleet), "the workers are ready")
    client = Client(app, testbed.through)
    stop = asyncio.Event()
    users = [asyncio.create_task(keep_starting(testbed, client, user, stop)) for user in range(USERS)]
    try:
        for number in range(1, KILLS + 1):
            await wait_until(partial(has_started, testbed, number * 25), "runs are started")
            before = postgres.pid
            postgres.kill()
            await wait_until(partial(is_another, postgres, before), "the server is started again")
        stop.set()
        runs = [run for user in users for run in await user]
    finally:
        stop.set()
        await asyncio.gather(*users, return_exceptions=True)
        await client.close()
    await testbed.wait_for_end(*runs)
    assert all(worker.is_running for worker in fleet)
    assert {line.attempt for line in testbed.lines} == {1}
    await testbed.check()


async def keep_starting(testbed: FaultEnvironment, client: Client, user: int, stop: asyncio.Event) -> list[UUID]:
    runs: list[UUID] = []
    while not stop.is_set():
        try:
            runs.append(await testbed.start("chain", f"{user}-{len(runs)}", client=client))
        except DatabaseUnavailable:
            continue  # with the same key
    return runs


def has_started(testbed: FaultEnvironment, runs: int) -> bool:
    return len(testbed.user_log.acknowledged) >= runs


async def answers(testbed: FaultEnvironment) -> bool:
    """Its recovery may take longer than a client waits."""
    try:
        return bool(await testbed.client.now())
    except DatabaseUnavailable:
        return False


def is_another(postgres: Postgres, before: int) -> bool:
    try:
        return postgres.pid != before
    except (OSError, IndexError, ValueError):
        return False
