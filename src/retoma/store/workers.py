"""Workers as the database knows them, and the upkeep that any of them does for all."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import timedelta
from uuid import UUID

from retoma.identifiers import Handle
from retoma.records import WorkerRecord
from retoma.store.database import Database
from retoma.store.statements import statements

_SQL = statements("workers")
_CALLS = statements("calls")


async def register(
    database: Database,
    name: str,
    queues: list[str],
    concurrency: int,
    lanes: int,
    silence: timedelta | None = None,
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
        lanes=lanes,
        silence=silence,
        pipelines=None if pipelines is None else list(pipelines),
        allow_hosts=None if allow_hosts is None else sorted(set(allow_hosts)),
    )
    return int(row["id"])


async def beat(database: Database, worker: int) -> bool:
    """The worker lives. False if it was declared dead."""
    return bool(await database.fetch(_SQL["beat"], worker=worker))


async def end(database: Database, worker: int) -> int:
    """The worker stops; gives how many jobs it still held, which are ready again."""
    row = await database.fetch_one(_SQL["end_worker"], worker=worker)
    return int(row["jobs"])


async def alive(database: Database) -> list[WorkerRecord]:
    """All that have neither ended nor been declared dead, the newest first."""
    return [WorkerRecord(**row) for row in await database.fetch(_SQL["list_workers"])]


async def sweep(database: Database, silence: timedelta, seen_for: timedelta | None = None) -> list[tuple[int, int]]:
    """Declare silent workers dead; return each with the number of jobs it held.

    `silence` is the timeout of workers without their own. `seen_for` is how long the caller has been able to reach the
    database: a worker that was silent before may have been cut off just as the caller was.
    """
    return [tuple(row) for row in await database.fetch(_CALLS["sweep"], silence=silence, seen_for=seen_for)]


@dataclass(frozen=True)
class Promotion:
    """How many delayed jobs became ready; in how long the next is due, a look at outside work, and one at runs."""

    promoted: int
    next_in: timedelta | None
    look_in: timedelta | None
    watch_in: timedelta | None


async def promote(database: Database, limit: int) -> Promotion:
    return Promotion(**await database.fetch_one(_CALLS["promote"], limit=limit))


async def repair_runs(database: Database, after: UUID | None, limit: int) -> tuple[list[UUID], UUID | None]:
    """End open runs in which nothing lives any more; return them, and the last run that was looked at."""
    row = await database.fetch_one(_CALLS["repair_runs"], after=after, limit=limit)
    return list(row["ended"] or []), row["last"]


async def unwanted(database: Database, worker: int, jobs: Sequence[Handle]) -> set[Handle]:
    """Which of these jobs are no longer this worker's, or of a run that is cancelled."""
    columns = {
        name: [job[place] for job in jobs] for place, name in enumerate(("run", "step", "item", "revision", "fence"))
    }
    return {tuple(row) for row in await database.fetch(_SQL["unwanted_jobs"], worker=worker, **columns)}
