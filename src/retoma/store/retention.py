"""Removal of ended runs after a time, and at once."""

from __future__ import annotations

from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from datetime import timedelta
from uuid import UUID

import asyncpg

from retoma.errors import RunBusy, RunHeld
from retoma.records import (
    Erasure,
    ExpiredRuns,
    FinalClass,
    RetentionPreview,
    RetentionRule,
    RetentionTotals,
    RunHold,
    RunRemoval,
    TableSize,
)
from retoma.settings import RetentionTimes
from retoma.store.database import Database
from retoma.store.statements import statements

_SQL = statements("retention")
FILE_GRACE = timedelta(hours=24)  # for which a file is kept that nothing names, in use and then set aside
_HELD, _NEEDED = "RT007", "RT008"


async def remove_expired_runs(
    database: Database, times: RetentionTimes, *, limit: int, jobs: int, pause: timedelta
) -> tuple[str, int]:
    """Remove the next runs. Return `working`, `idle` or `busy`, and how many were removed."""
    row = await database.fetch_one(
        _SQL["remove_expired_runs"], keep=times.ended, keep_failed=times.failed, limit=limit, jobs=jobs, pause=pause
    )
    return row["state"], row["removed"]


async def delete_old_rows(database: Database, times: RetentionTimes, limit: int) -> int:
    """Delete keys of removed runs, entries of the audit log and other rows that are old enough."""
    kept = {"keep_keys": times.keys, "keep_audit": times.audit, "keep_inbound": times.inbound}
    return int(await database.fetch_value(_SQL["delete_old_rows"], limit=limit, **kept))


async def list_rules(database: Database) -> list[RetentionRule]:
    """Return the rules that people have set, and then what pipelines declare."""
    rules = [
        RetentionRule(**{**row, "final_class": FinalClass(row["final_class"])})
        for row in await database.fetch(_SQL["list_rules"])
    ]
    declared = [
        RetentionRule(row["pipeline"], None, final_class, row["keep"], None, None)
        for row in await database.fetch(_SQL["list_declared"])
        for final_class in FinalClass
    ]
    return rules + declared


async def set_rule(
    database: Database,
    *,
    pipeline: str | None,
    tenant: int | None,
    final_class: FinalClass,
    keep: timedelta | None,
    by: str,
) -> None:
    values = {"pipeline": pipeline, "tenant": tenant, "final_class": final_class, "keep": keep, "by": by}
    await database.fetch(_SQL["set_rule"], **values)


async def remove_rule(database: Database, *, pipeline: str | None, tenant: int | None, final_class: FinalClass) -> bool:
    """Return whether there was such a rule."""
    values = {"pipeline": pipeline, "tenant": tenant, "final_class": final_class}
    return bool(await database.find_value(_SQL["remove_rule"], **values))


async def preview(database: Database, times: RetentionTimes, limit: int) -> RetentionPreview:
    """Return what would be removed now; at most `limit` runs of each version are checked."""
    rows = await database.fetch(_SQL["preview"], keep=times.ended, keep_failed=times.failed, limit=limit)
    (total,) = [row for row in rows if row["pipeline"] is None]
    groups = [
        ExpiredRuns(row["pipeline"], FinalClass(row["final_class"]), row["runs"], row["bytes"], row["oldest_end"])
        for row in rows
        if row is not total
    ]
    of_all = ("runs", "bytes", "files", "file_bytes", "is_complete")
    return RetentionPreview(groups=groups, **{name: total[name] for name in of_all})


async def hold_run(database: Database, run: UUID, tenant: int | None, by: str, reason: str) -> bool:
    """Return whether there is such a run."""
    return bool(await database.fetch_value(_SQL["hold_run"], run=run, tenant=tenant, by=by, reason=reason))


async def release_run(database: Database, run: UUID, tenant: int | None) -> bool:
    """Return whether the run was held."""
    return bool(await database.find_value(_SQL["release_run"], run=run, tenant=tenant))


async def list_holds(
    database: Database, *, run: UUID | None, tenants: Sequence[int] | None, limit: int
) -> list[RunHold]:
    return await database.fetch_records(RunHold, _SQL["list_holds"], run=run, tenants=tenants, limit=limit)


async def erase_run(database: Database, run: UUID, tenant: int | None) -> Erasure | None:
    """Return what was erased, child runs included, or None if there is no such run."""
    try:
        row = await database.fetch_one(_SQL["erase_run"], run=run, tenant=tenant)
    except asyncpg.PostgresError as error:
        raise _translate_error(error) from error
    return None if row["runs"] is None else Erasure(**row)


async def erase_runs_of_tenant(database: Database, tenant: int, limit: int) -> Erasure:
    """Erase the next runs of a tenant; there were 0 if none is left."""
    try:
        return Erasure(**await database.fetch_one(_SQL["erase_runs_of_tenant"], tenant=tenant, limit=limit))
    except asyncpg.PostgresError as error:
        raise _translate_error(error) from error


async def check_erasable(database: Database, tenant: int) -> None:
    """Raise RunHeld or RunBusy if a run of this tenant cannot be erased."""
    row = await database.fetch_one(_SQL["find_tenant_obstacle"], tenant=tenant)
    if row["held"] is not None:
        raise RunHeld(f"run {row['held']} is held: release it first")
    if row["open"] is not None:
        raise RunBusy(f"run {row['open']} has not ended: cancel it and wait until it has ended")


async def erase_tenant_rows(database: Database, tenant: int) -> None:
    """Delete what is left of a tenant without runs."""
    try:
        await database.fetch(_SQL["erase_tenant_rows"], tenant=tenant)
    except asyncpg.PostgresError as error:
        raise _translate_error(error) from error


async def index_files(database: Database, limit: int) -> bool | None:
    """Record the files of the next runs of earlier releases. Return whether all are recorded, None if another process
    holds the lock of retention."""
    is_complete: bool | None = await database.fetch_value(_SQL["index_files"], limit=limit)
    return is_complete


async def claim_file_shard(database: Database, pause: timedelta) -> int | None:
    """Return the next part of the file store to check, or None if it is not time for it."""
    shard: int | None = await database.fetch_value(_SQL["claim_file_shard"], pause=pause)
    return shard


async def list_unnamed_files(database: Database, digests: Sequence[str], grace: timedelta) -> set[str]:
    return set(await database.fetch_column(_SQL["list_unnamed_files"], digests=list(digests), grace=grace))


@asynccontextmanager
async def lock_unnamed_files(
    database: Database, shard: int, digests: Sequence[str], grace: timedelta
) -> AsyncIterator[set[str]]:
    """Yield those of these files that nothing names. Until the block ends, a transaction that names one waits."""
    statement = _SQL["lock_files"]
    values = statement.bind({"shard": shard, "digests": list(digests), "grace": grace})
    async with database.connection() as connection, connection.transaction():
        yield {row["digest"] for row in await connection.fetch(statement.sql, *values)}


async def count_deleted_files(database: Database, digests: Sequence[str], size: int, grace: timedelta) -> None:
    await database.fetch(_SQL["count_deleted_files"], digests=list(digests), bytes=size, grace=grace)


async def get_totals(database: Database) -> RetentionTotals:
    return RetentionTotals(**await database.fetch_one(_SQL["get_progress"]))


async def list_removals(database: Database, limit: int) -> list[RunRemoval]:
    return await database.fetch_records(RunRemoval, _SQL["list_removals"], limit=limit)


async def list_table_sizes(database: Database) -> list[TableSize]:
    return await database.fetch_records(TableSize, _SQL["list_table_sizes"])


def _translate_error(error: asyncpg.PostgresError) -> Exception:
    if error.sqlstate == _HELD:
        return RunHeld(f"run {error} is held ({error.detail}): release it first")
    if error.sqlstate == _NEEDED:
        return RunBusy(f"run {error} is {error.detail} or still has work at a provider: cancel it and wait for its end")
    return error
