"""Workers as the database knows them, and the upkeep that any of them does for all."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import timedelta
from uuid import UUID

from retoma.identifiers import ClaimKey
from retoma.records import WorkerRecord
from retoma.store.database import Database
from retoma.store.statements import statements

_SQL = statements("workers")
_CALLS = statements("engine")


async def register_worker(
    database: Database,
    name: str,
    queues: list[str],
    concurrency: int,
    links: int,
    heartbeat_timeout: timedelta | None = None,
    pipelines: Sequence[str] | None = None,
    allow_hosts: Sequence[str] | None = None,
) -> int:
    """A new id, never used before. `silence` is the worker's heartbeat timeout, by which all others judge it.

    `pipelines` are those that its application defines; without them it counts as serving any. `allow_hosts` are the
    private hosts that it may call; without them nobody checks whether it lacks one.
    """
    row = await database.fetch_one(
        _SQL["register_worker"],
        name=name,
        queues=queues,
        concurrency=concurrency,
        links=links,
        heartbeat_timeout=heartbeat_timeout,
        pipelines=None if pipelines is None else list(pipelines),
        allow_hosts=None if allow_hosts is None else sorted(set(allow_hosts)),
    )
    return int(row["id"])


async def send_heartbeat(database: Database, worker: int) -> bool:
    """The worker lives. False if it was declared dead."""
    return bool(await database.fetch(_SQL["send_heartbeat"], worker=worker))


async def deregister_worker(database: Database, worker: int) -> int:
    """The worker stops; gives how many jobs it still held, which are ready again."""
    row = await database.fetch_one(_SQL["deregister_worker"], worker=worker)
    return int(row["jobs"])


async def list_alive(database: Database) -> list[WorkerRecord]:
    """All that have neither ended nor been declared dead, the newest first."""
    return [WorkerRecord(**row) for row in await database.fetch(_SQL["list_workers"])]


async def reap_dead_workers(
    database: Database, heartbeat_timeout: timedelta, reachable_for: timedelta | None = None
) -> list[tuple[int, int]]:
    """Declare silent workers dead; return each with the number of jobs it held.

    `silence` is the timeout of workers without their own. `seen_for` is how long the caller has been able to reach the
    database: a worker that was silent before may have been cut off just as the caller was.
    """
    return [
        tuple(row)
        for row in await database.fetch(
            _CALLS["reap_dead_workers"], heartbeat_timeout=heartbeat_timeout, reachable_for=reachable_for
        )
    ]


@dataclass(frozen=True)
class ReleasedJobs:
    """How many delayed jobs became ready; in how long the next is due, a look at outside work, and one at runs."""

    released: int
    next_in: timedelta | None
    poll_in: timedelta | None
    watch_in: timedelta | None


async def release_due_jobs(database: Database, limit: int) -> ReleasedJobs:
    return ReleasedJobs(**await database.fetch_one(_CALLS["release_due_jobs"], limit=limit))


async def repair_runs(database: Database, after: UUID | None, limit: int) -> tuple[list[UUID], UUID | None]:
    """End open runs in which nothing lives any more; return them, and the last run that was looked at."""
    row = await database.fetch_one(_CALLS["repair_runs"], after=after, limit=limit)
    return list(row["ended"] or []), row["last"]


async def find_unwanted(database: Database, worker: int, jobs: Sequence[ClaimKey]) -> set[ClaimKey]:
    """Which of these jobs are no longer this worker's, or of a run that is cancelled."""
    columns = {
        name: [job[place] for job in jobs] for place, name in enumerate(("run", "step", "item", "revision", "fence"))
    }
    return {tuple(row) for row in await database.fetch(_SQL["find_unwanted_jobs"], worker=worker, **columns)}
