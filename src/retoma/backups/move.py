"""Move an embedded database to a PostgreSQL server of your own."""

from __future__ import annotations

import asyncio
import tempfile
from dataclasses import dataclass
from datetime import timedelta
from pathlib import Path

from retoma.backups.create import Report, dump_snapshot
from retoma.errors import Conflict
from retoma.logs import get_logger
from retoma.records import Actor, AuditAction
from retoma.store import backups, restores
from retoma.store.audit_log import PendingEntry
from retoma.store.database import Database

log = get_logger(__name__)


@dataclass(frozen=True)
class MovedDatabase:
    tables: int
    rows: int


async def move_database(
    source: Database,
    target: Database,
    *,
    actor: Actor,
    heartbeat_timeout: timedelta,
    report: Report = lambda *_: None,
) -> MovedDatabase:
    """Copy the embedded database into the empty target, and mark the source as moved. Raise Conflict if any other
    process uses the source: nothing may be written there meanwhile."""
    backups.refuse_pooler(target)
    await restores.refuse_if_in_use(source, heartbeat_timeout, "move")
    content = await restores.describe_content(target)
    if content is not None:
        raise Conflict(f"the database at {target.address} is not empty ({content}): move into an empty one")
    with source.used_exclusively(), tempfile.TemporaryDirectory(prefix="retoma-move-") as folder:
        rows = await _copy(source, target, Path(folder) / "database.dump", report)
        report("upgrade the schema", 0, None)
        after = {"from": source.address, "to": target.address, "rows": sum(rows.values())}
        entry = PendingEntry((), actor, AuditAction.DATABASE_MOVE, None, after=after, applies=lambda _: True)
        await restores.finish(target, None, entry)
        source.mark_as_moved(target.address)
    log.info("database_moved", message="the embedded database was moved", to=target.address, rows=sum(rows.values()))
    return MovedDatabase(len(rows), sum(rows.values()))


async def _copy(source: Database, target: Database, dump: Path, report: Report) -> dict[str, int]:
    async with backups.export_snapshot(source) as snapshot:
        await dump_snapshot(snapshot, source.url, dump, report)
        rows = await snapshot.count_rows()
    report("load the database", 0, None)
    with await asyncio.to_thread(dump.open, "rb") as file:
        await restores.load(target, file, rows)
    return rows
