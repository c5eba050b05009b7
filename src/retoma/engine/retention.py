"""Remove ended runs after a time, in small batches.

Every worker and server runs this loop, but only one of them removes anything at a time. How far it has come is in the
database, so another process continues where it stops.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Collection
from datetime import timedelta

from retoma.engine.file_collection import collect_files
from retoma.errors import DatabaseUnavailable
from retoma.files import FileStore
from retoma.logs import get_logger
from retoma.settings import RetentionTimes
from retoma.store import retention
from retoma.store.database import Database

log = get_logger(__name__)
RUNS_PER_BATCH = 100
JOBS_PER_BATCH = 5_000  # after so many the batch ends; the run that exceeds it is the last
ROWS_PER_BATCH = 1_000
PASS_INTERVAL = timedelta(minutes=10)  # between two passes over all runs
SECONDS_BETWEEN_CHECKS = 30.0
REST_FACTOR = 4  # for each second of work: the database is mostly free for the jobs


async def remove_forever(database: Database, times: RetentionTimes, files: Collection[FileStore] = ()) -> None:
    """Remove runs that are due, and files of these stores that nothing names, until cancelled."""
    # Not a part of maintenance, which must reap dead workers meanwhile.
    while True:
        await asyncio.sleep(SECONDS_BETWEEN_CHECKS)
        try:
            await remove_due(database, times)
            if files:
                await collect_files(database, files)
        except DatabaseUnavailable as error:
            log.warning(
                "retention_delayed", message="retention waits for the database, which is unreachable", error=error
            )


async def remove_due(database: Database, times: RetentionTimes, *, at_once: bool = False) -> int:
    """Remove all runs that are due now, unless another process does. Return how many.

    With `at_once`, start a pass over all runs even if the last one has just ended, and rest less.
    """
    removed, began = 0, time.monotonic()
    pause, state = (timedelta(0) if at_once else PASS_INTERVAL), "working"
    while state == "working":
        started = time.monotonic()
        state, count = await retention.remove_expired_runs(
            database, times, limit=RUNS_PER_BATCH, jobs=JOBS_PER_BATCH, pause=pause
        )
        pause = PASS_INTERVAL  # this pass is the only one
        removed += count
        await asyncio.sleep(0 if at_once else REST_FACTOR * (time.monotonic() - started))
    if removed:
        log.info(
            "runs_removed",
            message="removed runs that were kept long enough",
            runs=removed,
            seconds=round(time.monotonic() - began, 1),
        )
    deleted = ROWS_PER_BATCH
    while deleted >= ROWS_PER_BATCH:
        deleted = await retention.delete_old_rows(database, times, ROWS_PER_BATCH)
    return removed
