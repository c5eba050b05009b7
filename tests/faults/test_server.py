"""PostgreSQL is killed with -9 while work is done and asked for."""

from __future__ import annotations

import asyncio
import tempfile
from collections.abc import Iterator
from functools import partial
from pathlib import Path
from uuid import UUID

import pytest

from bench.chaos import farm
from bench.chaos.processes import Postgres
from retoma.client import Client
from retoma.errors import DatabaseUnavailable
from retoma.settings import Settings
from retoma.store.database import Database
from tests.faults.application import app, asked, says
from tests.faults.stage import SOON, Stage, on_stage, until

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


async def test_no_acknowledged_run_is_lost_and_no_worker_ends(postgres: Postgres, tmp_path: Path) -> None:
    async with await Database.open(Settings(database_url=postgres.url_by(postgres.port))) as database:
        await database.upgrade()
        async with on_stage(database, tmp_path) as stage:
            await kill_under_load(stage, postgres)


async def test_work_goes_on_outside_while_the_database_is_killed(postgres: Postgres, folder: Path) -> None:
    async with await Database.open(Settings(database_url=postgres.url_by(postgres.port))) as database:
        await database.upgrade()
        async with on_stage(database, folder) as stage:
            await kill_while_parked(stage, postgres)


async def kill_while_parked(stage: Stage, postgres: Postgres) -> None:
    worker = stage.worker(silence=SOON)
    run = await stage.start("outsourced", "parked")
    await until(lambda: asked("parked", worker.pid).exists(), "it is looked at")
    before = postgres.pid
    postgres.kill()
    await until(partial(is_another, postgres, before), "the server is started again")
    await until(partial(answers, stage), "the server answers")
    (bench,) = await stage.client.pools("bench")
    assert bench.used == 1
    says("parked").write_text("succeeded")
    assert await stage.ended(run) == ["completed"]
    (job,) = await stage.client.jobs(run)
    assert (job.attempt, len(farm.works(stage.folder)), worker.lives) == (1, 1, True)
    await stage.check()


async def kill_under_load(stage: Stage, postgres: Postgres) -> None:
    fleet = [stage.worker(silence=SOON) for _ in range(2)]
    await until(lambda: all(worker.is_ready for worker in fleet), "the workers are ready")
    client = Client(app, stage.through)
    stop = asyncio.Event()
    users = [asyncio.create_task(keep_starting(stage, client, user, stop)) for user in range(USERS)]
    try:
        for number in range(1, KILLS + 1):
            await until(partial(has_started, stage, number * 25), "runs are started")
            before = postgres.pid
            postgres.kill()
            await until(partial(is_another, postgres, before), "the server is started again")
        stop.set()
        runs = [run for user in users for run in await user]
    finally:
        stop.set()
        await asyncio.gather(*users, return_exceptions=True)
        await client.close()
    await stage.ended(*runs)
    assert all(worker.lives for worker in fleet)
    assert {line.attempt for line in stage.lines} == {1}
    await stage.check()


async def keep_starting(stage: Stage, client: Client, user: int, stop: asyncio.Event) -> list[UUID]:
    runs: list[UUID] = []
    while not stop.is_set():
        try:
            runs.append(await stage.start("chain", f"{user}-{len(runs)}", client=client))
        except DatabaseUnavailable:
            continue  # with the same key
    return runs


def has_started(stage: Stage, runs: int) -> bool:
    return len(stage.told.acknowledged) >= runs


async def answers(stage: Stage) -> bool:
    """Its recovery may take longer than a client waits."""
    try:
        return bool(await stage.client.now())
    except DatabaseUnavailable:
        return False


def is_another(postgres: Postgres, before: int) -> bool:
    try:
        return postgres.pid != before
    except (OSError, IndexError, ValueError):
        return False
