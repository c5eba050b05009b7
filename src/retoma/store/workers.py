"""Workers in the database, and the maintenance that any of them performs for all."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import timedelta
from uuid import UUID

import msgspec

from retoma.identifiers import ClaimKey
from retoma.records import JobStack, RunningJob, Worker, WorkerStacks
from retoma.store.database import Database
from retoma.store.rows import make_record
from retoma.store.statements import statements

MAX_RUNS = 20_000  # there is no index of running jobs, so open runs are read one by one
_SQL = statements("workers")
_decode_stacks = msgspec.json.Decoder(list[JobStack]).decode
_CALLS = statements("engine_calls")


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
    """Return a new id, which was never used before. Others judge the worker by its `heartbeat_timeout`.

    `pipelines` are those of its application; without them it counts as serving any. `allow_hosts` are the private
    hosts that it may call; without them nobody checks whether it lacks one.
    """
    number = await database.fetch_value(
        _SQL["register_worker"],
        name=name,
        queues=queues,
        concurrency=concurrency,
        links=links,
        heartbeat_timeout=heartbeat_timeout,
        pipelines=pipelines,
        allow_hosts=None if allow_hosts is None else sorted(set(allow_hosts)),
    )
    return int(number)


async def deregister_worker(database: Database, worker: int) -> int:
    """Deregister a worker that stops. Return the number of jobs that it still held, which are ready again."""
    return int(await database.fetch_value(_SQL["deregister_worker"], worker=worker))


async def request_drain(database: Database, worker: int, by: str) -> bool:
    """Let a worker claim nothing more, and end once its jobs have ended. Return False if it is not running."""
    return bool(await database.fetch_value(_SQL["request_drain"], worker=worker, by=by))


async def list_alive(database: Database) -> list[Worker]:
    """Return workers that have neither stopped nor been declared dead, newest first."""
    return await database.fetch_records(Worker, _SQL["list_workers"])


async def list_busy(database: Database) -> set[str]:
    """Return the names of workers that run jobs, among the oldest open runs."""
    return {row["name"] for row in await database.fetch(_SQL["list_busy_workers"], max_runs=MAX_RUNS)}


async def list_running_jobs(database: Database, tenants: Sequence[int] | None, limit: int) -> list[RunningJob]:
    """Return the jobs that workers run, the oldest first, among the oldest open runs of these tenants."""
    values = {"tenants": tenants, "max_runs": MAX_RUNS, "limit": limit}
    return await database.fetch_records(RunningJob, _SQL["list_running_jobs"], **values)


async def request_stacks(database: Database, worker: int, by: str) -> None:
    """Ask a worker for the stacks of its jobs. Nothing happens if it is not running."""
    await database.fetch(_SQL["request_stacks"], worker=worker, by=by)


async def list_stacks(database: Database, worker: int | None = None) -> list[WorkerStacks]:
    """Return the requests for stacks of running workers, or of one, with their answers."""
    found = await database.fetch(_SQL["list_stacks"], worker=worker)
    return [make_record(WorkerStacks, row, jobs=_decode_stacks(row["jobs"] or "[]")) for row in found]


async def reap_dead_workers(
    database: Database, heartbeat_timeout: timedelta, reachable_for: timedelta | None = None
) -> list[tuple[int, int]]:
    """Declare workers without a heartbeat dead; return each with the number of jobs it held.

    `heartbeat_timeout` applies to workers without their own. `reachable_for` is how long the caller has been able to
    reach the database: a worker whose heartbeats stopped before may have been cut off just as the caller was.
    """
    return [
        tuple(row)
        for row in await database.fetch(
            _CALLS["reap_dead_workers"], heartbeat_timeout=heartbeat_timeout, reachable_for=reachable_for
        )
    ]


@dataclass(frozen=True)
class ReleasedJobs:
    """The number of released jobs, and the time until the next job, poll of external work and run check are due."""

    released: int
    next_in: timedelta | None
    poll_in: timedelta | None
    watch_in: timedelta | None


async def release_due_jobs(database: Database, limit: int) -> ReleasedJobs:
    return ReleasedJobs(**await database.fetch_one(_CALLS["release_due_jobs"], limit=limit))


async def repair_runs(database: Database, after: UUID | None, limit: int) -> tuple[list[UUID], UUID | None]:
    """End open runs without live jobs; return them, and the last run that was checked."""
    row = await database.fetch_one(_CALLS["repair_runs"], after=after, limit=limit)
    return list(row["ended"] or []), row["last"]


async def find_unwanted(database: Database, worker: int, jobs: Sequence[ClaimKey]) -> set[ClaimKey]:
    """Return those of these jobs that this worker no longer owns, or whose run is cancelled."""
    columns = {
        name: [job[place] for job in jobs] for place, name in enumerate(("run", "step", "item", "revision", "fence"))
    }
    return {tuple(row) for row in await database.fetch(_SQL["find_unwanted_jobs"], worker=worker, **columns)}
