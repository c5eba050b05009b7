"""Restore a backup into an empty database, and its files into the file store."""

from __future__ import annotations

import asyncio
import shutil
import tempfile
from dataclasses import dataclass
from datetime import timedelta
from pathlib import Path

from retoma.backups.archive import CHUNK, BackupArchive, open_archive
from retoma.backups.create import Report
from retoma.backups.manifest import DATABASE, FileEntry, Manifest, Part
from retoma.backups.verify import list_entries, verify_backup
from retoma.errors import BackupFailed, Conflict
from retoma.files import SPOOL_BYTES, FileStore
from retoma.logs import get_logger
from retoma.records import Actor, AuditAction
from retoma.store import migrate, restores
from retoma.store.audit_log import PendingEntry
from retoma.store.backups import refuse_pooler
from retoma.store.database import Database
from retoma.store.restores import Origin, Outbox, Restored

log = get_logger(__name__)


@dataclass(frozen=True)
class RestoredBackup:
    """`files` were copied into the file store; those that were there already are not counted."""

    manifest: Manifest
    database: Restored
    files: int


async def restore_backup(
    database: Database,
    files: FileStore,
    path: Path,
    *,
    actor: Actor,
    outbox: Outbox = "hold",
    replace: bool = False,
    heartbeat_timeout: timedelta,
    report: Report = lambda *_: None,
) -> RestoredBackup:
    """Restore a backup, all of which is checked first. Raise Conflict if the database is in use, or not empty without
    `replace`."""
    with open_archive(path) as archive:
        _refuse_newer(archive.read_manifest())
        await _check_target(database, replace, heartbeat_timeout)
        manifest = await verify_backup(archive, report)
        copied = await _copy_files(archive, manifest, files, report)
        report("load the database", 0, None)
        with archive.open_checked(DATABASE, manifest.database) as dump:
            await restores.load(database, dump, manifest.tables)
    report("upgrade the schema", 0, None)
    restored = await restores.finish(
        database, Origin(manifest.id, manifest.taken_at, outbox), _build_entry(actor, manifest, outbox)
    )
    log.info(
        "restore_completed",
        message="the database was restored from a backup",
        backup=str(manifest.id),
        taken_at=manifest.taken_at.isoformat(),
        held=restored.held,
        jobs=restored.jobs,
    )
    return RestoredBackup(manifest, restored, copied)


def _refuse_newer(manifest: Manifest) -> None:
    if migrate.is_newer(manifest.schema_number, manifest.retoma):
        raise BackupFailed(
            f"the backup is of Retoma {manifest.retoma} with schema {manifest.schema_number}, newer than this release, "
            f"{migrate.RELEASE}: restore it with Retoma {manifest.retoma}"
        )


async def _check_target(database: Database, replace: bool, heartbeat_timeout: timedelta) -> None:
    refuse_pooler(database)
    content = await restores.describe_content(database)
    if content is not None and not replace:
        raise Conflict(
            f"the database at {database.address} is not empty ({content}): restore into an empty one, or pass "
            "--replace to delete all of this first"
        )
    if content is not None:
        await restores.refuse_if_in_use(database, heartbeat_timeout, "restore")


async def _copy_files(archive: BackupArchive, manifest: Manifest, files: FileStore, report: Report) -> int:
    copied, done = 0, 0
    for entry in list(list_entries(archive, manifest)):
        copied += await _copy_file(archive, entry, files)
        done += entry.size
        report("copy files", done, manifest.files.bytes)
    return copied


async def _copy_file(archive: BackupArchive, entry: FileEntry, files: FileStore) -> bool:
    """Copy a file unless the store has it. A file whose key is not made of its content is always copied."""
    if entry.key.endswith(entry.sha256) and await files.get_size(entry.key) == entry.size:
        return False
    with tempfile.SpooledTemporaryFile(SPOOL_BYTES) as spool:
        with archive.open_checked(entry.name, Part(size=entry.size, sha256=entry.sha256)) as content:
            await asyncio.to_thread(shutil.copyfileobj, content, spool, CHUNK)
        spool.seek(0)
        await files.write_key(entry.key, spool)
    return True


def _build_entry(actor: Actor, manifest: Manifest, outbox: Outbox) -> PendingEntry:
    after = {"taken_at": manifest.taken_at, "retoma": manifest.retoma, "outbox": outbox}
    return PendingEntry((), actor, AuditAction.BACKUP_RESTORE, str(manifest.id), after=after, applies=lambda _: True)
