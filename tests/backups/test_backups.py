"""What a backup contains, while others write; and where it can be restored."""

from __future__ import annotations

import asyncio
from hashlib import sha256
from pathlib import Path

import pytest

from retoma.backups import CopyFiles, create_backup, open_archive
from retoma.errors import BackupFailed, Conflict, SchemaMismatch
from retoma.store import backups, migrate, postgres_programs, restores, workers
from retoma.testing import fresh_database
from tests.backups.builders import (
    ANA,
    POSTER,
    Film,
    Studio,
    back_up,
    empty_database,
    list_names,
    new_machine,
    old_machine,
    open_files,
    restore,
)
from tests.engine.builders import value

SECRET = "pass word/with#characters"


async def test_a_backup_has_all_files_that_its_rows_name_while_others_are_added(tmp_path: Path) -> None:
    async with old_machine(Studio(), tmp_path / "old") as old:
        stopping = asyncio.Event()

        async def start_runs() -> int:
            number = 0
            while not stopping.is_set():
                poster = await old.client.files.save(b"%d" % number, tenant="default")
                await old.client.start("film", Film(topic=str(number), poster=poster))
                number += 1
            return number

        starting = asyncio.create_task(start_runs())
        path = await back_up(old, tmp_path / "backup.tar")
        stopping.set()
        assert await starting > 0
    async with empty_database() as database:
        files = open_files(tmp_path / "new")
        restored = await restore(database, files, path)
        async with new_machine(Studio(), database, files) as new:
            runs = await new.client.runs.list(limit=1_000)
            assert len(runs) == restored.manifest.tables["runs"]
            for run in runs:
                assert await files.get_size(_get_key(run.input["poster"]["file"])) is not None


def _get_key(digest: str) -> str:
    return f"content/{digest[:2]}/{digest}"


async def test_files_with_keys_of_their_own_are_restored(tmp_path: Path) -> None:
    (tmp_path / "video").write_bytes(b"frames")
    async with old_machine(Studio(), tmp_path / "old") as old:
        assert old.app.files is not None
        await old.app.files.put(tmp_path / "video", "gpu/job/1/video_1.mp4")
        path = await back_up(old, tmp_path / "backup")
    async with empty_database() as database:
        await restore(database, open_files(tmp_path / "new"), path)
    assert (tmp_path / "new/files/gpu/job/1/video_1.mp4").read_bytes() == b"frames"


async def test_a_missing_or_damaged_file_fails_the_backup_and_is_named(tmp_path: Path) -> None:
    digest = sha256(POSTER).hexdigest()
    async with old_machine(Studio(), tmp_path / "old") as old:
        poster = await old.client.files.save(POSTER, tenant="default")
        await old.client.start("film", Film(topic="x", poster=poster))
        stored = tmp_path / "old/files" / _get_key(digest)
        stored.write_bytes(b"damaged!")
        with pytest.raises(BackupFailed, match=f"{digest} is damaged"):
            await back_up(old, tmp_path / "backup.tar")
        stored.unlink()
        with pytest.raises(BackupFailed, match=f"1 files that runs name are not in the file store: {digest}"):
            await back_up(old, tmp_path / "backup.tar")
        assert not (tmp_path / "backup.tar").exists()
        assert old.app.files is not None
        manifest = await create_backup(
            old.database, old.app.files, tmp_path / "backup.tar", actor=ANA, copy=CopyFiles.COPY, allow_missing=True
        )
        assert manifest.files.missing == (digest,)


async def test_files_can_be_left_where_they_are(tmp_path: Path) -> None:
    async with old_machine(Studio(), tmp_path / "old") as old:
        await old.client.files.save(POSTER, tenant="default")
        assert old.app.files is not None
        to = tmp_path / "backup"
        manifest = await create_backup(old.database, old.app.files, to, actor=ANA, copy=CopyFiles.NONE)
        assert (manifest.files.copied, manifest.files.count) == (False, 0)
        assert manifest.files.location == str(tmp_path / "old/files")
        assert list((to / "files").iterdir()) == []


async def test_a_completed_backup_is_recorded(tmp_path: Path) -> None:
    async with old_machine(Studio(), tmp_path / "old") as old:
        assert await backups.get_last_backup(old.database) is None
        path = await back_up(old, tmp_path / "backup.tar")
        with open_archive(path) as archive:
            manifest = archive.read_manifest()
        found = await backups.get_last_backup(old.database)
        assert found is not None
        assert found[0] == manifest.taken_at


async def test_a_database_that_is_not_empty_is_replaced_only_if_asked(tmp_path: Path) -> None:
    async with old_machine(Studio(), tmp_path / "old") as old:
        path = await back_up(old, tmp_path / "backup.tar")
        await old.client.start("film", Film(topic="later"))
        files = open_files(tmp_path / "old")
        with pytest.raises(Conflict, match=r"not empty \(1 runs \(1 of them open"):
            await restore(old.database, files, path)
        worker = await workers.register_worker(old.database, "busy", ["default"], 1, 1)
        with pytest.raises(Conflict, match="in use by worker busy"):
            await restore(old.database, files, path, replace=True)
        await workers.deregister_worker(old.database, worker)
        await restore(old.database, files, path, replace=True)
        assert await value(old, "select count(*) from retoma.runs") == 0


async def test_an_interrupted_restore_lets_no_process_use_the_database(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def die(*_: object) -> None:
        raise KeyboardInterrupt

    async with old_machine(Studio(), tmp_path / "old") as old:
        path = await back_up(old, tmp_path / "backup.tar")
    async with empty_database() as database:
        files = open_files(tmp_path / "new")
        with monkeypatch.context() as patch:
            patch.setattr(restores, "finish", die)
            with pytest.raises(KeyboardInterrupt):
                await restore(database, files, path)
        for use in (database.require_current, database.upgrade):
            with pytest.raises(SchemaMismatch, match="its restore was interrupted"):
                await use()
        with pytest.raises(Conflict, match="an unfinished restore"):
            await restore(database, files, path)
        await restore(database, files, path, replace=True)
        await database.require_current()


async def test_a_dump_that_breaks_off_leaves_the_database_empty(tmp_path: Path) -> None:
    async with old_machine(Studio(), tmp_path / "old") as old:
        path = await back_up(old, tmp_path / "backup")
    dump = path / "database.dump"
    dump.write_bytes(dump.read_bytes()[:-5_000])
    async with empty_database() as database:
        with dump.open("rb") as file, pytest.raises(BackupFailed, match=r"(pg_restore|psql) failed"):
            await restores.load(database, file, {})
        assert await restores.describe_content(database) is None


async def test_a_restored_database_must_have_all_rows(tmp_path: Path) -> None:
    async with old_machine(Studio(), tmp_path / "old") as old:
        path = await back_up(old, tmp_path / "backup")
    async with empty_database() as database:
        with (
            (path / "database.dump").open("rb") as file,
            pytest.raises(BackupFailed, match="runs has 0 rows instead of 9"),
        ):
            await restores.load(database, file, {"runs": 9})


@pytest.mark.parametrize(("name", "number"), [("0.9.0", 1), ("0.1.0rc1", 9_999)])
async def test_a_backup_of_a_newer_release_is_refused(name: str, number: int, tmp_path: Path) -> None:
    async with old_machine(Studio(), tmp_path / "old") as old:
        path = await back_up(old, tmp_path / "backup")
    manifest = path / "manifest.json"
    changed = manifest.read_text().replace(f'"retoma": "{migrate.RELEASE}"', f'"retoma": "{name}"')
    newest = migrate.list_migrations()[-1].number
    manifest.write_text(changed.replace(f'"schema_number": {newest}', f'"schema_number": {number}'))
    async with empty_database() as database:
        with pytest.raises(BackupFailed, match=f"restore it with Retoma {name}"):
            await restore(database, open_files(tmp_path / "new"), path)


async def test_a_pooler_is_refused(tmp_path: Path) -> None:
    async with fresh_database() as database:
        database.pooled = True
        with pytest.raises(BackupFailed, match="is a transaction pooler"):
            await create_backup(database, open_files(tmp_path), tmp_path / "x.tar", actor=ANA, copy=CopyFiles.NONE)
        assert list_names(tmp_path) == ["files"]


@pytest.mark.parametrize(
    ("url", "address", "password"),
    [
        ("postgresql://me:a%2Fb@db:5433/x", "postgresql://me@db:5433/x", "a/b"),
        ("postgresql://me@/x?host=/run&password=b", "postgresql://me@/x?host=/run", "b"),
        ("postgresql://db/x?sslmode=require", "postgresql://db/x?sslmode=require", None),
        ("postgresql://me:p@[::1]:5432/x", "postgresql://me@[::1]:5432/x", "p"),
    ],
)
def test_passwords_are_not_arguments(url: str, address: str, password: str | None) -> None:
    assert postgres_programs.split_password(url) == (address, password)


def test_a_server_that_is_newer_than_all_programs_names_the_remedy() -> None:
    with pytest.raises(BackupFailed, match=r"install the client programs of PostgreSQL 99 .*postgresql-client-99"):
        postgres_programs.choose_programs(99)


async def test_an_error_of_a_program_does_not_show_the_password(tmp_path: Path) -> None:
    programs = postgres_programs.choose_programs(15)
    url = f"postgresql://me:{SECRET.replace(' ', '%20').replace('/', '%2F').replace('#', '%23')}@127.0.0.1:1/x"
    (tmp_path / "dump").write_bytes(b"PGDMP")
    with (tmp_path / "dump").open("rb") as dump, pytest.raises(BackupFailed) as raised:
        await asyncio.to_thread(postgres_programs.load_dump, programs, url, dump, "", "")
    assert SECRET not in str(raised.value)
