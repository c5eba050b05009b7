"""Take a backup: one snapshot of the database, and the files of the file store."""

from __future__ import annotations

import asyncio
import shutil
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from datetime import datetime
from enum import StrEnum
from hashlib import sha256
from pathlib import Path
from uuid import uuid4

from retoma import private_files
from retoma.backups.archive import CHUNK, ArchiveWriter, HashingFile, write_archive
from retoma.backups.manifest import (
    DATABASE,
    FILE_LIST,
    FORMAT,
    MANIFEST,
    FileEntry,
    Files,
    Manifest,
    Part,
)
from retoma.errors import BackupFailed
from retoma.files import FileStore, get_digest
from retoma.logs import get_logger
from retoma.records import Actor, AuditAction
from retoma.store import backups, postgres_programs
from retoma.store.audit_log import PendingEntry
from retoma.store.backups import Snapshot
from retoma.store.database import Database
from retoma.store.migrate import RELEASE, SchemaStatus

log = get_logger(__name__)
Report = Callable[[str, int, int | None], None]
"""Called with what is being done, and how much of it is done in bytes, of how much if that is known."""

_SHOWN_FILES = 5
_POLL_SECONDS = 0.1
_SPARE_BYTES = 64 << 20  # that must stay free on the disk


class CopyFiles(StrEnum):
    COPY = "copy"
    NONE = "none"


@dataclass(frozen=True)
class Estimate:
    """The largest size that a backup can have: its dump is compressed."""

    database_bytes: int
    files: int
    file_bytes: int


async def estimate_size(database: Database, files: FileStore, copy: CopyFiles) -> Estimate:
    async with backups.export_snapshot(database) as snapshot:
        size = await snapshot.get_size()
    found = await _list_sizes(files) if copy is CopyFiles.COPY else {}
    return Estimate(size, len(found), sum(found.values()))


async def create_backup(
    database: Database,
    files: FileStore,
    to: Path,
    *,
    actor: Actor,
    copy: CopyFiles,
    allow_missing: bool = False,
    report: Report = lambda *_: None,
) -> Manifest:
    """Write a backup to `to` and return its manifest. Raise Conflict if `to` exists.

    Files are read after the snapshot: a file is stored before any row names it, and not deleted until the end, so all
    files that the snapshot names are there. Raise BackupFailed if one is missing, unless `allow_missing`.
    """
    backup = uuid4()
    async with write_archive(to) as writer, backups.keep_files(database):
        dumped = await _dump_database(database, writer, report)
        stored = await _copy_files(files, writer, copy, dumped.named_files, allow_missing, report)
        manifest = Manifest(
            format=FORMAT,
            id=backup,
            retoma=dumped.status.functions_of or RELEASE,
            schema_number=dumped.status.applied,
            taken_at=dumped.taken_at,
            server_version=dumped.server_version,
            tables=dumped.tables,
            files=stored.summary,
            database=dumped.part,
            file_list=stored.list_part,
        )
        _add(writer, MANIFEST, manifest.model_dump_json(indent=2).encode() + b"\n")
        report("write to disk", 0, None)
    size = manifest.database.size + manifest.files.bytes
    if dumped.status.is_current:  # an older schema has no place for it
        entry = PendingEntry(
            ("record_backup",), actor, AuditAction.BACKUP_CREATE, str(backup), after={"taken_at": dumped.taken_at}
        )
        await backups.record_backup(database.recording(entry), backup, dumped.taken_at, size, manifest.files.count)
    log.info(
        "backup_completed",
        message="a backup was taken",
        backup=str(backup),
        taken_at=dumped.taken_at.isoformat(),
        bytes=size,
        files=manifest.files.count,
    )
    return manifest


@dataclass(frozen=True)
class _DumpedDatabase:
    part: Part
    status: SchemaStatus
    taken_at: datetime
    server_version: str
    tables: dict[str, int]
    named_files: set[str]


async def _dump_database(database: Database, writer: ArchiveWriter, report: Report) -> _DumpedDatabase:
    path = writer.folder / DATABASE
    path.touch(mode=0o600)
    async with backups.export_snapshot(database) as snapshot:
        status = await snapshot.get_status()
        await dump_snapshot(snapshot, database.url, path, report)
        tables = await snapshot.count_rows()
        dumped = _DumpedDatabase(
            await asyncio.to_thread(hash_file, path),
            status,
            snapshot.taken_at,
            snapshot.server_version,
            tables,
            await snapshot.list_named_files(),
        )
    writer.add(DATABASE, path)
    return dumped


async def dump_snapshot(snapshot: Snapshot, url: str, path: Path, report: Report) -> None:
    size = await snapshot.get_size()
    programs = postgres_programs.choose_programs(snapshot.major_version)
    dump = postgres_programs.start_dump(programs, url, snapshot.name, path)
    try:
        while not dump.is_finished():
            report("dump and compress the database", dump.size, size)
            await asyncio.sleep(_POLL_SECONDS)
    finally:
        dump.stop()


@dataclass(frozen=True)
class _StoredFiles:
    summary: Files
    list_part: Part


async def _copy_files(
    files: FileStore, writer: ArchiveWriter, copy: CopyFiles, named: set[str], allow_missing: bool, report: Report
) -> _StoredFiles:
    found = await _list_files(files, named)
    missing = _refuse_missing(named, found, allow_missing)
    entries: list[FileEntry] = []
    if copy is CopyFiles.COPY:
        _require_space(writer.folder, sum(found.values()))
        entries = await _copy_each(files, writer, found, report)
        missing = _refuse_missing(named, [entry.key for entry in entries], allow_missing)
    lines = "".join(f"{entry.model_dump_json()}\n" for entry in entries).encode()
    summary = Files(
        stored_in="folder" if files.is_local else "bucket",
        location=files.location,
        copied=copy is CopyFiles.COPY,
        count=len(entries),
        bytes=sum({entry.sha256: entry.size for entry in entries}.values()),
        missing=missing,
    )
    return _StoredFiles(summary, _add(writer, FILE_LIST, lines))


async def _list_files(files: FileStore, named: set[str]) -> dict[str, int]:
    """Return the key and the size of each file, in the order of the keys."""
    found = await _list_sizes(files)
    if not named <= {get_digest(key) for key in found}:
        # The listing misses a file that is set aside or brought back meanwhile.
        found |= await _list_sizes(files)
    return dict(sorted(found.items()))


async def _list_sizes(files: FileStore) -> dict[str, int]:
    return {key: size async for key, size in files.list_keys()}


def _refuse_missing(named: set[str], keys: Iterable[str], allow_missing: bool) -> tuple[str, ...]:
    """Return the named files that have none of these keys. Raise BackupFailed unless `allow_missing`."""
    missing = tuple(sorted(named - {get_digest(key) for key in keys}))
    if missing and not allow_missing:
        shown = ", ".join(missing[:_SHOWN_FILES]) + (" ..." if len(missing) > _SHOWN_FILES else "")
        raise BackupFailed(
            f"{len(missing)} files that runs name are not in the file store: {shown}; check RETOMA_FILES_URL and "
            "RETOMA_HOME, or pass --allow-missing-files if you have deleted them"
        )
    return missing


async def _copy_each(
    files: FileStore, writer: ArchiveWriter, found: Mapping[str, int], report: Report
) -> list[FileEntry]:
    """Copy the files that still exist: one that nothing names may have been deleted."""
    entries: list[FileEntry] = []
    done, total = 0, sum(found.values())
    written: set[str] = set()
    for key in found:
        part = await _fetch(files, key, writer.folder / "file")
        if part is None:
            continue
        digest = get_digest(key)
        if digest is not None and digest != part.sha256:
            raise BackupFailed(
                f"the file {digest} is damaged: its content has the SHA-256 {part.sha256}; restore it from an earlier "
                "backup, or delete it and pass --allow-missing-files"
            )
        entry = FileEntry(key=key, sha256=part.sha256, size=part.size)
        if part.sha256 in written:
            (writer.folder / "file").unlink()
        else:
            await asyncio.to_thread(writer.add, entry.name, writer.folder / "file")
        written.add(part.sha256)
        entries.append(entry)
        done += part.size
        report("copy files", done, total)
    return entries


async def _fetch(files: FileStore, key: str, to: Path) -> Part | None:
    opened = await files.open_in_place(key)
    if opened is None:
        return None
    with HashingFile.create(to) as file:
        async for chunk in opened.chunks:
            await asyncio.to_thread(file.write, chunk)
    return file.part


def _require_space(folder: Path, size: int) -> None:
    free = shutil.disk_usage(folder).free
    if free < size + _SPARE_BYTES:
        raise BackupFailed(
            f"the files have {size:,} bytes, but only {free:,} are free at {folder.parent}: choose another disk with "
            "--to"
        )


def _add(writer: ArchiveWriter, name: str, content: bytes) -> Part:
    path = writer.folder / name
    private_files.write_file(path, content)
    writer.add(name, path)
    return Part(size=len(content), sha256=sha256(content).hexdigest())


def hash_file(path: Path) -> Part:
    digest, size = sha256(), 0
    with path.open("rb") as file:
        while chunk := file.read(CHUNK):
            digest.update(chunk)
            size += len(chunk)
    return Part(size=size, sha256=digest.hexdigest())
