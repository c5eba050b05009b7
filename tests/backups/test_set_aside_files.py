"""A backup while file collection sets files aside, brings them back and deletes them; in a folder and in a bucket."""

from __future__ import annotations

from collections.abc import AsyncIterator, Awaitable, Callable
from datetime import timedelta
from pathlib import Path

import pytest

from retoma import File
from retoma.backups import CopyFiles, Manifest, create_backup, open_archive
from retoma.backups.verify import list_entries
from retoma.engine.file_collection import collect_shard
from retoma.errors import BackupFailed
from retoma.files import FileSettings, FileStore, create_file_store
from retoma.store import retention
from retoma.testing import Sandbox, fresh_database, sandbox
from tests.backups.builders import ANA, POSTER, Film, Studio, build_app, empty_database, open_files, restore
from tests.s3_bucket import serve_bucket

LATER = b"stored later"


class Machine:
    """An application whose file store is a folder or a bucket, and an action in the middle of its backup."""

    def __init__(self, opened: Sandbox, files: FileStore, folder: Path) -> None:
        self.opened, self.files, self.folder = opened, files, folder

    async def start(self, poster: File) -> None:
        await self.opened.client.start("film", Film(topic="x", poster=poster))

    async def forget_grants(self) -> None:
        """Let the grace time of what was just uploaded be over."""
        async with self.opened.database.connection() as connection:
            await connection.execute("update retoma.tenant_files set granted_at = granted_at - interval '25 hours'")

    async def erase_runs(self) -> None:
        await self.opened.work()
        for run in await self.opened.client.runs.list():
            await self.opened.client.runs.cancel(run.id)
            await self.opened.client.retention.erase_run(run.id)

    async def collect(self, *saved: File) -> int:
        """Check the parts of these files, without a grace time."""
        assert await retention.index_files(self.opened.database, 100)
        shards = {int(file.file[:2], 16) for file in saved}
        return sum([await collect_shard(self.opened.database, self.files, each, timedelta(0)) for each in shards])

    async def back_up(self, copy: CopyFiles = CopyFiles.COPY, *, allow_missing: bool = False) -> Manifest:
        to = self.folder / "backup.tar"
        return await create_backup(
            self.opened.database, self.files, to, actor=ANA, copy=copy, allow_missing=allow_missing
        )

    def list_archived(self) -> list[str]:
        with open_archive(self.folder / "backup.tar") as archive:
            return sorted(entry.key for entry in list_entries(archive, archive.read_manifest()))


@pytest.fixture(params=["folder", "bucket"])
async def machine(
    request: pytest.FixtureRequest, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> AsyncIterator[Machine]:
    async with serve_bucket(monkeypatch) as (_, url), fresh_database() as database:
        files_url = url if request.param == "bucket" else None
        files = create_file_store(FileSettings(_env_file=None, home=tmp_path / "old", files_url=files_url))
        async with sandbox(build_app(Studio(), files), database) as opened:
            yield Machine(opened, files, tmp_path)


@pytest.fixture
async def poster(machine: Machine) -> File:
    return await machine.opened.client.files.save(POSTER, tenant="default", name="poster.png")


def act_after_listing(monkeypatch: pytest.MonkeyPatch, action: Callable[[], Awaitable[object]]) -> None:
    """Act when the files are listed and none of them has been read."""
    list_keys = FileStore.list_keys

    async def list_and_act(self: FileStore) -> AsyncIterator[tuple[str, int]]:
        async for each in list_keys(self):
            yield each
        await action()

    monkeypatch.setattr(FileStore, "list_keys", list_and_act)


def get_key(file: File) -> str:
    return f"content/{file.file[:2]}/{file.file}"


async def list_folders(files: FileStore) -> list[str]:
    """Where the content of the store is: `content` or `aside`."""
    return sorted(
        ["content" for shard in range(256) for _ in await files.list_old(shard, timedelta(0))]
        + ["aside" for shard in range(256) for _ in await files.list_old(shard, timedelta(0), set_aside=True)]
    )


async def test_a_file_that_is_set_aside_is_backed_up_and_restored(machine: Machine, poster: File) -> None:
    await machine.start(poster)
    await machine.files.set_aside(poster.file)
    manifest = await machine.back_up()
    assert (manifest.files.count, manifest.files.missing) == (1, ())
    assert machine.list_archived() == [get_key(poster)]
    assert await list_folders(machine.files) == ["aside"], "a backup that brings files back would keep them for ever"
    new = open_files(machine.folder / "new")
    async with empty_database() as database:
        assert (await restore(database, new, machine.folder / "backup.tar")).files == 1
    assert await new.get_size(get_key(poster)) == len(POSTER)
    assert await new.load(poster) == POSTER


async def test_a_file_that_is_stored_again_after_it_was_set_aside_is_backed_up_once(
    machine: Machine, poster: File
) -> None:
    await machine.files.set_aside(poster.file)
    await machine.files.save(POSTER)
    assert await list_folders(machine.files) == ["aside", "content"]
    manifest = await machine.back_up()
    assert (manifest.files.count, manifest.files.bytes) == (1, len(POSTER))


async def test_a_damaged_file_that_is_set_aside_is_named(machine: Machine, poster: File) -> None:
    (machine.folder / "damaged").write_bytes(b"damaged!")
    await machine.files.put(machine.folder / "damaged", get_key(poster))
    await machine.files.set_aside(poster.file)
    with pytest.raises(BackupFailed, match=f"{poster.file} is damaged"):
        await machine.back_up()


async def test_files_that_move_before_they_are_read_are_backed_up(
    machine: Machine, poster: File, monkeypatch: pytest.MonkeyPatch
) -> None:
    later = await machine.files.save(LATER)
    await machine.files.set_aside(poster.file)

    async def swap() -> None:
        assert await machine.files.bring_back(poster.file)
        await machine.files.set_aside(later.file)

    act_after_listing(monkeypatch, swap)
    await machine.back_up()
    assert machine.list_archived() == sorted([get_key(poster), get_key(later)])


async def test_a_file_that_is_brought_back_while_it_is_opened_is_backed_up(
    machine: Machine, poster: File, monkeypatch: pytest.MonkeyPatch
) -> None:
    await machine.start(poster)
    await machine.files.set_aside(poster.file)
    open_key = FileStore.open_key

    async def miss_it_once(self: FileStore, key: str, part: tuple[int, int] | None = None) -> object:
        opened = await open_key(self, key, part)
        if opened is None:
            await self.bring_back(poster.file)
        return opened

    monkeypatch.setattr(FileStore, "open_key", miss_it_once)
    assert (await machine.back_up()).files.count == 1


async def test_a_file_that_escapes_the_listing_because_it_moves_is_found(
    machine: Machine, poster: File, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It is set aside when the listing has passed `aside/`, but not yet `content/`."""
    await machine.start(poster)
    list_keys, listings = FileStore.list_keys, 0

    async def list_without_it(self: FileStore) -> AsyncIterator[tuple[str, int]]:
        nonlocal listings
        listings += 1
        if listings == 1:
            await self.set_aside(poster.file)
            return
        async for each in list_keys(self):
            yield each

    monkeypatch.setattr(FileStore, "list_keys", list_without_it)
    assert (await machine.back_up()).files.missing == ()
    assert machine.list_archived() == [get_key(poster)]


async def test_a_file_that_nothing_names_may_disappear_during_the_backup(
    machine: Machine, poster: File, monkeypatch: pytest.MonkeyPatch
) -> None:
    await machine.forget_grants()
    await machine.files.set_aside(poster.file)
    act_after_listing(monkeypatch, lambda: machine.files.delete_aside(poster.file))
    manifest = await machine.back_up()
    assert (manifest.files.count, manifest.files.missing) == (0, ())


@pytest.mark.parametrize("allow_missing", [False, True])
async def test_a_file_that_a_run_names_must_not_disappear_during_the_backup(
    allow_missing: bool, machine: Machine, poster: File, monkeypatch: pytest.MonkeyPatch
) -> None:
    await machine.start(poster)
    await machine.files.set_aside(poster.file)
    act_after_listing(monkeypatch, lambda: machine.files.delete_aside(poster.file))
    if allow_missing:
        assert (await machine.back_up(allow_missing=True)).files.missing == (poster.file,)
    else:
        with pytest.raises(BackupFailed, match=f"1 files that runs name are not in the file store: {poster.file}"):
            await machine.back_up()


async def test_no_file_is_deleted_while_a_backup_needs_it(
    machine: Machine, poster: File, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The run is erased when the snapshot has it; its file must reach the archive although nothing names it now."""
    await machine.start(poster)
    await machine.forget_grants()
    deleted: list[int] = []

    async def erase_and_collect() -> None:
        await machine.erase_runs()
        deleted.extend([await machine.collect(poster) for _ in range(3)])

    act_after_listing(monkeypatch, erase_and_collect)
    await machine.back_up()
    assert deleted == [0, 0, 0]
    assert machine.list_archived() == [get_key(poster)]
    assert await machine.collect(poster) == 1


async def test_a_backup_without_files_accepts_files_that_are_set_aside(machine: Machine, poster: File) -> None:
    await machine.start(poster)
    await machine.files.set_aside(poster.file)
    assert (await machine.back_up(CopyFiles.NONE)).files.missing == ()


async def test_a_file_that_was_deleted_long_after_its_upload_is_not_missed(machine: Machine, poster: File) -> None:
    """Whatever deleted it ended before it took back who may name it."""
    await machine.forget_grants()
    await machine.files.set_aside(poster.file)
    await machine.files.delete_aside(poster.file)
    assert (await machine.back_up()).files.missing == ()


async def test_files_that_only_a_profile_or_an_effect_names_are_missed(machine: Machine, poster: File) -> None:
    logo = await machine.opened.client.files.save(LATER, tenant="blog")
    await machine.opened.client.tenants.set_profile("blog", {"logo": logo.model_dump()})
    await machine.forget_grants()
    await machine.files.set_aside(poster.file)
    await machine.files.delete_aside(poster.file)
    async with machine.opened.database.connection() as connection:
        run = await machine.opened.client.start("film", Film(topic="x"))
        await connection.execute("select retoma.record_file_names($1, $2)", run.id, poster.model_dump_json())
    for named in (poster, logo):
        await machine.files.set_aside(named.file)
        await machine.files.delete_aside(named.file)
    manifest = await machine.back_up(allow_missing=True)
    assert manifest.files.missing == tuple(sorted([poster.file, logo.file]))
