"""Check that a backup is complete and unchanged, without a database."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator

from retoma.backups.archive import CHUNK, BackupArchive
from retoma.backups.create import Report
from retoma.backups.manifest import DATABASE, FILE_LIST, FileEntry, Manifest, Part, parse_entry
from retoma.errors import BackupFailed

_MAX_LINE = 4_096


async def verify_backup(archive: BackupArchive, report: Report = lambda *_: None) -> Manifest:
    """Read all of the backup and return its manifest. Raise BackupFailed, naming what is missing or damaged."""
    manifest = archive.read_manifest()
    total = manifest.database.size + manifest.files.bytes
    done, checked = 0, set()
    report("verify", done, total)
    await asyncio.to_thread(_read, archive, DATABASE, manifest.database)
    done += manifest.database.size
    entries = list(list_entries(archive, manifest))
    if len(entries) != manifest.files.count:
        raise BackupFailed(f"{FILE_LIST} has {len(entries)} files, not {manifest.files.count}")
    for entry in entries:
        if entry.sha256 not in checked:
            await asyncio.to_thread(_read, archive, entry.name, Part(size=entry.size, sha256=entry.sha256))
            checked.add(entry.sha256)
            done += entry.size
        report("verify", done, total)
    return manifest


def list_entries(archive: BackupArchive, manifest: Manifest) -> Iterator[FileEntry]:
    """Yield the files of a backup."""
    with archive.open_checked(FILE_LIST, manifest.file_list) as file:
        while line := file.readline(_MAX_LINE):
            yield parse_entry(line)


def _read(archive: BackupArchive, name: str, part: Part) -> None:
    with archive.open_checked(name, part) as file:
        while file.read(CHUNK):
            pass
