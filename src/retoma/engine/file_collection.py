"""Delete stored files that nothing names any more.

A file is found by reading the store, part by part. It is set aside if nothing names it and it was stored at least a
grace time ago, and deleted another grace time later. Until then, an upload that found it stored, or
a run that started at the same moment, brings it back. Only the deletion needs a lock, against runs that name it then.
"""

from __future__ import annotations

import asyncio
from collections.abc import Collection, Iterator, Sequence
from datetime import timedelta

from retoma.files import FileStore, StoredFile
from retoma.logs import get_logger
from retoma.store import retention
from retoma.store.database import Database
from retoma.store.retention import FILE_GRACE

log = get_logger(__name__)
PASS_INTERVAL = timedelta(hours=24)
RUNS_PER_INDEX_BATCH = 100
INDEX_REST_SECONDS = 0.05
SHARDS = 256
FILES_PER_QUERY = 1_000
FILES_PER_LOCK = 10  # while it is held, a run that names a file of the same part waits


async def collect_files(
    database: Database,
    stores: Collection[FileStore],
    *,
    grace: timedelta = FILE_GRACE,
    pause: timedelta = PASS_INTERVAL,
) -> int:
    """Check the parts of these file stores that are due. Return how many files were deleted.

    Check none while another process lists the files of runs of earlier releases.
    """
    while not (is_complete := await retention.index_files(database, RUNS_PER_INDEX_BATCH)):
        if is_complete is None:
            return 0
        await asyncio.sleep(INDEX_REST_SECONDS)
    deleted = 0
    for _ in range(SHARDS):
        shard = await retention.claim_file_shard(database, pause)
        if shard is None:
            break
        deleted += sum([await collect_shard(database, files, shard, grace) for files in stores])
    return deleted


async def collect_shard(database: Database, files: FileStore, shard: int, grace: timedelta) -> int:
    """Check one of 256 parts. Return how many files were deleted."""
    deleted = await delete_set_aside(database, files, shard, grace)
    for batch in _split(await files.list_old(shard, grace), FILES_PER_QUERY):
        for digest in await retention.list_unnamed_files(database, _list_digests(batch), grace):
            await files.set_aside(digest)
    return deleted


async def delete_set_aside(database: Database, files: FileStore, shard: int, grace: timedelta) -> int:
    deleted: list[StoredFile] = []
    for batch in _split(await files.list_old(shard, grace, set_aside=True), FILES_PER_LOCK):
        async with retention.lock_unnamed_files(database, shard, _list_digests(batch), grace) as unnamed:
            for file in batch:
                if file.digest in unnamed:
                    await files.delete_aside(file.digest)
                    deleted.append(file)
    await _bring_back_named(database, files, shard, grace)
    if deleted:
        size = sum(file.size for file in deleted)
        await retention.count_deleted_files(database, _list_digests(deleted), size, grace)
        log.info("files_deleted", message="deleted files that nothing names", files=len(deleted), bytes=size)
    return len(deleted)


async def _bring_back_named(database: Database, files: FileStore, shard: int, grace: timedelta) -> None:
    """Put files back in use that were named after they were set aside."""
    for batch in _split(await files.list_old(shard, timedelta(0), set_aside=True), FILES_PER_QUERY):
        digests = _list_digests(batch)
        for digest in set(digests) - await retention.list_unnamed_files(database, digests, grace):
            await files.bring_back(digest)


def _list_digests(files: Sequence[StoredFile]) -> list[str]:
    return [file.digest for file in files]


def _split(files: Sequence[StoredFile], size: int) -> Iterator[Sequence[StoredFile]]:
    for first in range(0, len(files), size):
        yield files[first : first + size]
