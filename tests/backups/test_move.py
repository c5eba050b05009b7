"""Move an embedded database to a server of one's own, with open work."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import pytest

from retoma.backups import move_database
from retoma.errors import Conflict, DatabaseUnavailable
from retoma.settings import Settings
from retoma.store import embedded, workers
from retoma.store.database import Database
from retoma.testing import sandbox
from tests.acceptance.servers import postgresql_15
from tests.backups.builders import (
    ANA,
    HEARTBEAT_TIMEOUT,
    Studio,
    build_app,
    finish_work,
    get_states,
    new_machine,
    open_files,
    open_when_started,
    open_work,
)
from tests.engine.builders import value
from tests.receiver import receiver


def use_home(home: Path) -> Settings:
    return Settings(_env_file=None, home=home)


@asynccontextmanager
async def empty_server() -> AsyncIterator[Database]:
    with postgresql_15() as port:
        async with await open_when_started(f"postgresql://retoma@127.0.0.1:{port}/postgres") as database:
            yield database


async def test_open_work_goes_on_after_a_move_and_the_old_data_cannot_be_started(tmp_path: Path) -> None:
    studio, files = Studio(), open_files(tmp_path)
    async with receiver() as hook, empty_server() as target:
        async with await Database.open(use_home(tmp_path)) as source:
            await source.upgrade()
            async with sandbox(build_app(studio, files), source) as old, open_work(old, studio, hook.url) as worker:
                with pytest.raises(Conflict, match="in use by worker sandbox"):
                    await move_database(source, target, actor=ANA, heartbeat_timeout=HEARTBEAT_TIMEOUT)
                await workers.deregister_worker(source, worker.worker)
            other = await asyncio.to_thread(embedded.attach, tmp_path)
            with pytest.raises(Conflict, match="other processes use the embedded database"):
                await move_database(source, target, actor=ANA, heartbeat_timeout=HEARTBEAT_TIMEOUT)
            other.close()
            moved = await move_database(source, target, actor=ANA, heartbeat_timeout=HEARTBEAT_TIMEOUT)
            assert moved.rows > 100
        with pytest.raises(DatabaseUnavailable, match=r"was moved to 127\.0\.0\.1.*database-moved"):
            await Database.open(use_home(tmp_path))
        async with new_machine(studio, target, files) as new:
            await new.send_webhooks()
            assert len(hook.requests) == 5, "what was due is sent: nothing else has happened meanwhile"
            await finish_work(new)
            assert set((await get_states(new)).values()) == {"completed"}
            assert len(studio.bills + studio.renders) == len(set(studio.bills + studio.renders)) == 15
            (entry,) = await new.client.audit.list(action="database.move")
            assert entry.after is not None
            assert entry.after["rows"] == moved.rows
            assert await value(new, "select count(*) from retoma.restores") == 0


async def test_a_database_is_not_moved_into_one_that_is_not_empty(tmp_path: Path) -> None:
    async with await Database.open(use_home(tmp_path)) as source:
        await source.upgrade()
        with pytest.raises(Conflict, match="is not empty"):
            await move_database(source, source, actor=ANA, heartbeat_timeout=HEARTBEAT_TIMEOUT)
    async with await Database.open(use_home(tmp_path)):
        pass  # it was not marked as moved
