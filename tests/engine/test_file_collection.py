"""Stored files that nothing names are deleted after a grace time; one that somebody needs at that moment is not."""

from __future__ import annotations

import asyncio
import os
import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from datetime import timedelta
from pathlib import Path
from uuid import UUID

import pytest
from pydantic import BaseModel

from retoma import Context, File, Pipeline
from retoma.engine.file_collection import collect_files, collect_shard, delete_set_aside
from retoma.files import FileSettings, FileStore, create_file_store
from retoma.store import retention
from retoma.testing import Sandbox
from tests.conftest import OpenSandbox
from tests.engine.builders import value

GRACE = timedelta(hours=24)
IS_ANY_BLOCKED = "select exists (select from pg_stat_activity where pg_backend_pid() = any (pg_blocking_pids(pid)))"
DAY = timedelta(days=1)


class Letter(BaseModel):
    letter: File | None = None


class FileSandbox:
    """An application with a file store of its own."""

    def __init__(self, sandbox: Sandbox, files: FileStore, folder: Path) -> None:
        self.sandbox = sandbox
        self.client = sandbox.client
        self.files = files
        self.folder = folder / "files"

    async def save(self, content: bytes = b"abc") -> File:
        return await self.files.save(content, name="a.txt")

    def age(self, by: timedelta = 2 * GRACE) -> None:
        """Let all files be so much older."""
        for path in self.folder.rglob("*"):
            if path.is_file():
                at = path.stat().st_mtime - by.total_seconds()
                os.utime(path, (at, at))

    async def collect(self) -> int:
        """Check the parts of the store that have files."""
        database = self.sandbox.database
        assert await retention.index_files(database, limit=100)
        shards = {int(path.name[:2], 16) for path in self.folder.rglob("*") if path.is_file()}
        return sum([await collect_shard(database, self.files, shard, GRACE) for shard in shards])

    async def collect_twice(self) -> int:
        """Set aside what nothing names, and delete it a grace time later."""
        self.age()
        first = await self.collect()
        self.age()
        return first + await self.collect()

    def list_paths(self) -> list[str]:
        return sorted(path.parent.parent.name for path in self.folder.rglob("*") if path.is_file())


@pytest.fixture
async def store(open_sandbox: OpenSandbox, tmp_path: Path) -> AsyncIterator[FileSandbox]:
    async with open_file_sandbox(open_sandbox, tmp_path) as made:
        yield made


@asynccontextmanager
async def open_file_sandbox(open_sandbox: OpenSandbox, tmp_path: Path) -> AsyncIterator[FileSandbox]:
    post = Pipeline("post", inputs=Letter)

    @post.step
    async def scanned(letter: File | None, *, ctx: Context) -> File:
        return letter or await ctx.save_file(b"scan", "scan.pdf")

    files = create_file_store(FileSettings(_env_file=None, home=tmp_path))
    async with open_sandbox(post, files=files) as sandbox:
        yield FileSandbox(sandbox, files, tmp_path)


async def test_a_file_that_nothing_names_is_deleted_after_two_grace_times(store: FileSandbox) -> None:
    await store.save()
    assert await store.collect() == 0
    assert store.list_paths() == ["content"]
    store.age()
    assert await store.collect() == 0
    assert store.list_paths() == ["aside"]
    assert await store.collect() == 0
    store.age()
    assert await store.collect() == 1
    assert store.list_paths() == []
    totals = await store.client.retention.get_totals()
    assert (totals.removed_files, totals.removed_file_bytes) == (1, 3)


async def test_a_file_that_was_set_aside_is_still_read(store: FileSandbox) -> None:
    saved = await store.save()
    store.age()
    await store.collect()
    assert await store.files.has(saved)
    assert store.list_paths() == ["content"]
    await store.files.set_aside(saved.file)
    assert await store.files.load(saved) == b"abc"
    await store.files.set_aside(saved.file)
    assert (await store.files.get_path(saved)).read_bytes() == b"abc"


async def test_files_of_inputs_and_results_are_kept_as_long_as_their_run(store: FileSandbox) -> None:
    saved = await store.save()
    run = (await store.sandbox.run("post", {"letter": saved})).id
    result = (await store.sandbox.run("post")).results["scanned"]
    assert await store.collect_twice() == 0
    assert store.list_paths() == ["content", "content"]
    await store.client.retention.erase_run(run)
    await store.sandbox.clock.advance(2 * DAY)
    assert await store.collect_twice() == 1
    assert await store.files.load(File.model_validate(result)) == b"scan"


async def test_a_fork_keeps_the_files_that_it_shares(store: FileSandbox) -> None:
    run = (await store.sandbox.run("post", {"letter": await store.save()})).id
    fork = await store.client.runs.fork(run)
    await store.client.retention.erase_run(run)
    await store.sandbox.clock.advance(2 * DAY)
    assert await store.collect_twice() == 0
    await store.client.retention.erase_run(fork.id)
    assert await store.collect_twice() == 1


async def test_the_same_content_stored_again_is_new(store: FileSandbox) -> None:
    await store.save()
    store.age()
    await store.save()
    assert await store.collect() == 0
    assert store.list_paths() == ["content"]


async def test_a_file_that_a_tenant_just_stored_is_kept(store: FileSandbox) -> None:
    await store.client.files.save(b"abc", tenant="blog")
    assert await store.collect_twice() == 0, "by the clock of the database it was stored just now"
    await store.sandbox.clock.advance(2 * DAY)
    assert await store.collect_twice() == 1
    assert await value(store.sandbox, "select count(*) from retoma.tenant_files") == 0


async def test_a_profile_and_a_draft_keep_their_files(store: FileSandbox) -> None:
    saved = await store.save()
    await store.client.tenants.set_profile("blog", {"logo": saved.model_dump()})
    assert await store.collect_twice() == 0
    await store.client.tenants.delete_profile("blog")
    assert await store.collect_twice() == 1


async def test_a_run_that_starts_when_its_file_is_set_aside_finds_it(store: FileSandbox) -> None:
    saved = await store.save()
    store.age()
    await store.collect()
    assert store.list_paths() == ["aside"]
    run = await store.client.start("post", {"letter": saved})
    await store.collect()
    assert store.list_paths() == ["content"], "brought back, because a run names it now"
    await store.sandbox.work()
    assert await store.client.files.get(run.id, saved.file) == saved


async def test_a_start_that_names_a_file_holds_up_its_deletion(store: FileSandbox) -> None:
    """Two connections: the start has not committed when the deletion asks."""
    saved = await store.save()
    store.age()
    await store.collect()
    store.age()
    shard = int(saved.file[:2], 16)
    database = store.sandbox.database
    run = UUID(int=7)
    async with database.connection() as connection:
        transaction = connection.transaction()
        await transaction.start()
        await connection.execute("select retoma.record_file_names($1, $2)", run, Letter(letter=saved).model_dump_json())
        assert await delete_set_aside(database, store.files, shard, GRACE) == 0
        assert store.list_paths() == ["aside"]
        await transaction.commit()
    await collect_shard(database, store.files, shard, GRACE)
    assert store.list_paths() == ["content"]


async def test_a_fork_that_shares_a_file_holds_up_its_deletion(store: FileSandbox) -> None:
    """Two connections: the fork has not committed when the deletion asks, and nothing else names the file any more."""
    saved = await store.save()
    letter = Letter(letter=saved).model_dump_json()
    source, fork = (await store.sandbox.run("post", {"letter": saved})).id, UUID(int=7)
    await store.files.set_aside(saved.file)
    store.age()
    await store.sandbox.clock.advance(2 * DAY)
    database, shard = store.sandbox.database, int(saved.file[:2], 16)
    async with database.connection() as connection:
        transaction = connection.transaction()
        await transaction.start()
        await connection.execute(
            "select retoma.fork_run($1, null, 'Ana', $2, $3, null, '{}', $4)", source, fork, letter, KEY
        )
        async with database.connection() as erasing:  # the erasure itself waits for the fork
            await erasing.execute("delete from retoma.file_names where run = $1", source)
        assert await delete_set_aside(database, store.files, shard, GRACE) == 0
        await transaction.commit()
    await store.client.retention.erase_run(source)
    assert await store.collect_twice() == 0
    assert store.list_paths() == ["content"]


KEY = '{"key": "a fork", "digest": "00"}'


async def test_a_profile_that_is_being_saved_holds_up_the_deletion(store: FileSandbox) -> None:
    """Two connections: the profile is not committed when the deletion asks."""
    saved = await store.save()
    await store.client.tenants.set_profile("blog", {})
    store.age()
    await store.collect()
    store.age()
    shard = int(saved.file[:2], 16)
    database = store.sandbox.database
    async with database.connection() as connection:
        transaction = connection.transaction()
        await transaction.start()
        await connection.execute("update retoma.profiles set value = $1", saved.model_dump_json())
        assert await delete_set_aside(database, store.files, shard, GRACE) == 0
        assert store.list_paths() == ["aside"]
        await transaction.commit()
    await collect_shard(database, store.files, shard, GRACE)
    assert store.list_paths() == ["content"]


async def test_a_start_waits_while_the_file_that_it_names_is_deleted(store: FileSandbox) -> None:
    """Otherwise it could commit between the last look and the deletion."""
    saved = await store.save()
    database, shard = store.sandbox.database, int(saved.file[:2], 16)
    text = Letter(letter=saved).model_dump_json()
    async with database.connection() as deleting, database.connection() as naming:
        transaction = deleting.transaction()
        await transaction.start()
        found = await deleting.fetch(
            "select * from retoma.lock_files($1, array[decode($2, 'hex')], $3)", shard, saved.file, GRACE
        )
        assert len(found) == 1
        task = asyncio.create_task(naming.execute("select retoma.record_file_names($1, $2)", UUID(int=7), text))
        deadline = time.monotonic() + 10
        while not await deleting.fetchval(IS_ANY_BLOCKED):
            assert time.monotonic() < deadline
            assert not task.done()
        await transaction.rollback()
        await task


async def test_an_upload_during_the_deletion_loses_nothing(store: FileSandbox, monkeypatch: pytest.MonkeyPatch) -> None:
    """The same content is stored at the very moment between the last look and the deletion."""
    saved = await store.save()
    store.age()
    await store.collect()
    store.age()
    delete = FileStore.delete_aside

    async def store_first(self: FileStore, digest: str) -> None:
        await store.save()
        await delete(self, digest)

    monkeypatch.setattr(FileStore, "delete_aside", store_first)
    assert await store.collect() == 1
    assert store.list_paths() == ["content"]
    assert await store.files.load(saved) == b"abc"


async def test_an_upload_while_the_file_is_set_aside_loses_nothing(
    store: FileSandbox, monkeypatch: pytest.MonkeyPatch
) -> None:
    saved = await store.save()
    store.age()
    set_aside = FileStore.set_aside

    async def store_first(self: FileStore, digest: str) -> None:
        await store.save()
        await set_aside(self, digest)

    monkeypatch.setattr(FileStore, "set_aside", store_first)
    await store.collect()
    run = await store.sandbox.run("post", {"letter": saved})
    store.age()
    assert await store.collect() == 0
    assert await store.files.load(File.model_validate(run.results["scanned"])) == b"abc"


async def test_files_of_runs_of_an_earlier_release_are_kept(store: FileSandbox) -> None:
    saved = await store.save()
    await store.sandbox.run("post", {"letter": saved})
    async with store.sandbox.database.connection() as connection:
        await connection.execute("delete from retoma.file_names")
    assert await store.collect_twice() == 0
    assert store.list_paths() == ["content"]


async def test_no_file_is_deleted_before_all_runs_are_indexed(store: FileSandbox) -> None:
    await store.save()
    assert await value(store.sandbox, "select retoma.claim_file_shard('0')") is None


LOCK_RETENTION = "select retoma.try_lock_retention()"


async def test_files_are_collected_while_another_process_removes_runs(store: FileSandbox) -> None:
    await store.save()
    store.age()
    assert await retention.index_files(store.sandbox.database, limit=100)
    async with store.sandbox.database.connection() as removing, removing.transaction(), asyncio.timeout(10):
        assert await removing.fetchval(LOCK_RETENTION)
        await collect_files(store.sandbox.database, [store.files])
    assert store.list_paths() == ["aside"]


async def test_files_are_left_while_another_process_lists_those_of_earlier_runs(store: FileSandbox) -> None:
    await store.save()
    store.age()
    async with store.sandbox.database.connection() as listing, listing.transaction(), asyncio.timeout(10):
        assert await listing.fetchval(LOCK_RETENTION)
        assert await collect_files(store.sandbox.database, [store.files]) == 0
    assert store.list_paths() == ["content"]


async def test_a_pass_checks_every_part_of_the_store_once_a_day(store: FileSandbox) -> None:
    await store.save()
    store.age()
    database = store.sandbox.database
    assert await collect_files(database, [store.files]) == 0
    assert store.list_paths() == ["aside"]
    store.age()
    assert await collect_files(database, [store.files]) == 0, "the next pass begins a day later"
    await store.sandbox.clock.advance(DAY)
    assert await collect_files(database, [store.files]) == 1
