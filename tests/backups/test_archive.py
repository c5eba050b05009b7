"""Damaged and hostile backups are refused, and an interrupted one leaves nothing that looks complete."""

from __future__ import annotations

import asyncio
import io
import json
import stat
import tarfile
from collections.abc import Callable
from hashlib import sha256
from pathlib import Path
from typing import Any

import pytest

from retoma.backups import open_archive, verify_backup
from retoma.backups.archive import write_archive
from retoma.errors import BackupFailed, Conflict
from tests.backups.builders import list_names
from tests.full_disk import files_of_at_most

DUMP, POSTER = b"a dump", b"a poster"
POSTER_SHA256 = sha256(POSTER).hexdigest()
POSTER_KEY = f"content/{POSTER_SHA256[:2]}/{POSTER_SHA256}"


def describe(content: bytes) -> dict[str, Any]:
    return {"size": len(content), "sha256": sha256(content).hexdigest()}


def build_parts(key: str = POSTER_KEY, **changes: Any) -> dict[str, bytes]:
    """The files of a backup with one stored file, by their names."""
    listed = json.dumps({"key": key, **describe(POSTER)}).encode() + b"\n"
    manifest = {
        "format": 1,
        "id": "0199a3a2-0000-7000-8000-000000000000",
        "retoma": "0.1.0rc1",
        "schema_number": 1,
        "taken_at": "2030-01-01T12:00:00Z",
        "server_version": "18.6",
        "tables": {"runs": 1},
        "files": {"stored_in": "folder", "location": "/srv", "copied": True, "count": 1, "bytes": len(POSTER)},
        "database": describe(DUMP),
        "file_list": describe(listed),
    }
    return {
        "manifest.json": json.dumps(manifest | changes).encode(),
        "database.dump": DUMP,
        "files.jsonl": listed,
        f"files/{POSTER_SHA256}": POSTER,
    }


def write_folder(parts: dict[str, bytes], to: Path) -> Path:
    (to / "files").mkdir(parents=True)
    for name, content in parts.items():
        (to / name).write_bytes(content)
    return to


def write_tar(parts: dict[str, bytes], to: Path, *more: tarfile.TarInfo) -> Path:
    with tarfile.open(to, "w") as tar:
        for name, content in parts.items():
            member = tarfile.TarInfo(name)
            member.size = len(content)
            tar.addfile(member, io.BytesIO(content))
        for member in more:
            tar.addfile(member)
    return to


async def verify(path: Path) -> None:
    with open_archive(path) as archive:
        await verify_backup(archive)


def make_link(name: str, target: str, kind: bytes = tarfile.SYMTYPE) -> tarfile.TarInfo:
    member = tarfile.TarInfo(name)
    member.type, member.linkname = kind, target
    return member


async def test_an_unchanged_backup_is_accepted(tmp_path: Path) -> None:
    await verify(write_folder(build_parts(), tmp_path / "backup"))
    await verify(write_tar(build_parts(), tmp_path / "backup.tar"))


@pytest.mark.parametrize("name", ["database.dump", "files.jsonl", f"files/{POSTER_SHA256}"])
@pytest.mark.parametrize("damage", [lambda content: content[:-1], lambda content: b"x" + content[1:]])
async def test_a_damaged_part_is_named(name: str, damage: Callable[[bytes], bytes], tmp_path: Path) -> None:
    parts = build_parts()
    parts[name] = damage(parts[name])
    for path in (write_folder(parts, tmp_path / "backup"), write_tar(parts, tmp_path / "backup.tar")):
        with pytest.raises(BackupFailed, match=f"{name} is damaged|{name} is invalid"):
            await verify(path)


@pytest.mark.parametrize("name", ["manifest.json", "database.dump", "files.jsonl", f"files/{POSTER_SHA256}"])
async def test_a_missing_part_is_named(name: str, tmp_path: Path) -> None:
    parts = build_parts()
    del parts[name]
    for path in (write_folder(parts, tmp_path / "backup"), write_tar(parts, tmp_path / "backup.tar")):
        with pytest.raises(BackupFailed, match=name):
            await verify(path)


@pytest.mark.parametrize(
    "key",
    [
        "../../etc/cron.d/job",
        "/etc/cron.d/job",
        "content/../x",
        "content/ab/../../../x",
        f"content/{'0' * 2}/{'0' * 64}",  # not the digest of the content
        f"aside/{'0' * 2}/{'0' * 64}",
        "a\\..\\b",
        "a/\u0000",
    ],
)
async def test_a_key_that_leads_elsewhere_is_refused(key: str, tmp_path: Path) -> None:
    with pytest.raises(BackupFailed, match=r"files\.jsonl is invalid"):
        await verify(write_folder(build_parts(key), tmp_path / "backup"))


@pytest.mark.parametrize(
    "member",
    [
        make_link("database.dump", "/etc/passwd"),
        make_link(f"files/{'0' * 64}", "../../x"),
        make_link(f"files/{'0' * 64}", "manifest.json", tarfile.LNKTYPE),
        tarfile.TarInfo("../evil"),
        tarfile.TarInfo("/etc/cron.d/job"),
        tarfile.TarInfo("files/../../evil"),
        tarfile.TarInfo("manifest.json"),  # a second one
    ],
    ids=lambda member: f"{member.name[:20]} {member.type!r}",
)
async def test_a_tar_with_anything_else_in_it_is_refused(member: tarfile.TarInfo, tmp_path: Path) -> None:
    path = write_tar(build_parts(), tmp_path / "backup.tar", member)
    with pytest.raises(BackupFailed, match="does not belong into a backup"):
        await verify(path)


@pytest.mark.parametrize("name", ["manifest.json", "database.dump", f"files/{POSTER_SHA256}", "files"])
async def test_a_link_in_a_folder_is_not_followed(name: str, tmp_path: Path) -> None:
    folder = write_folder(build_parts(), tmp_path / "backup")
    (folder / name).rename(tmp_path / "elsewhere")
    (folder / name).symlink_to(tmp_path / "elsewhere")
    with pytest.raises(BackupFailed):
        await verify(folder)


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"format": 2}, "format 2, and this release reads format 1"),
        ({"tables": {"runs": -1}}, "not that of a backup"),
        ({"database": {"size": 6, "sha256": "../x"}}, "not that of a backup"),
        (
            {"files": {"stored_in": "folder", "location": "", "copied": True, "count": 2, "bytes": 1}},
            "has 1 files, not 2",
        ),
    ],
)
async def test_a_manifest_that_is_wrong_is_refused(changes: dict[str, Any], message: str, tmp_path: Path) -> None:
    with pytest.raises(BackupFailed, match=message):
        await verify(write_folder(build_parts(**changes), tmp_path / "backup"))


async def test_a_file_that_is_no_backup_is_refused(tmp_path: Path) -> None:
    (tmp_path / "x.tar").write_bytes(b"x" * 2_000)
    for name in ("x.tar", "missing.tar"):
        with pytest.raises(BackupFailed, match="is not a backup"):
            await verify(tmp_path / name)


@pytest.mark.parametrize("name", ["backup", "backup.tar"])
async def test_a_backup_that_is_interrupted_leaves_nothing(name: str, tmp_path: Path) -> None:
    async def write() -> None:
        async with write_archive(tmp_path / name) as writer:
            (writer.folder / "part").write_bytes(DUMP)
            writer.add("database.dump", writer.folder / "part")
            assert list_names(tmp_path) == [writer.folder.name]
            assert writer.folder.name.startswith(".")
            raise asyncio.CancelledError

    with pytest.raises(asyncio.CancelledError):
        await write()
    assert list_names(tmp_path) == []


@pytest.mark.parametrize("name", ["backup", "backup.tar"])
async def test_a_disk_that_is_full_leaves_nothing(name: str, tmp_path: Path) -> None:
    async def write() -> None:
        async with write_archive(tmp_path / name) as writer:
            for number in range(200):
                writer.add(f"files/{number}", write_part(writer.folder / "part", b"x" * 9_999))
            writer.add("database.dump", write_part(writer.folder / "part", b"x" * 1_000_001))

    with files_of_at_most(1_000_000), pytest.raises(BackupFailed, match=r"cannot write the backup .*File too large"):
        await write()
    assert list_names(tmp_path) == []


def write_part(path: Path, content: bytes) -> Path:
    path.write_bytes(content)
    return path


@pytest.mark.parametrize("name", ["backup", "backup.tar"])
async def test_a_backup_is_private_and_replaces_nothing(name: str, tmp_path: Path) -> None:
    async with write_archive(tmp_path / name) as writer:
        (writer.folder / "part").write_bytes(DUMP)
        writer.add("database.dump", writer.folder / "part")
    assert stat.S_IMODE((tmp_path / name).stat().st_mode) & 0o077 == 0
    with pytest.raises(Conflict, match="never replaces anything"):
        async with write_archive(tmp_path / name):
            pass
    (tmp_path / "link.tar").symlink_to("nowhere")
    with pytest.raises(Conflict):
        async with write_archive(tmp_path / "link.tar"):
            pass
