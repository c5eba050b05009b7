"""Find why a job does not run although its dependencies are met."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import timedelta
from typing import Any
from uuid import UUID

from retoma.records import PoolRecord, Wait, WaitReason, WorkerRecord
from retoma.store import pools, waiting_jobs, workers
from retoma.store.database import Database


@dataclass(frozen=True)
class CapacitySnapshot:
    """Live workers, the number of jobs that each holds, and the pools."""

    live: Sequence[WorkerRecord]
    held: Mapping[int, int]
    pools: Mapping[str, PoolRecord]


async def list_waits(database: Database, run: UUID, heartbeat_timeout: timedelta) -> list[Wait]:
    """Return why jobs of a run wait. A worker counts if it sent a heartbeat within `heartbeat_timeout`."""
    waiting = await waiting_jobs.list_for_run(database, run)
    if not waiting:
        return []
    capacity = CapacitySnapshot(
        live=[worker for worker in await workers.list_alive(database) if worker.is_alive(heartbeat_timeout)],
        held=await waiting_jobs.count_held_jobs(database),
        pools={pool.name: pool for pool in await pools.list_pools(database)},
    )
    return [
        Wait(
            step=row["step"],
            queue=row["queue"],
            jobs=row["jobs"],
            item=row["item"],
            reason=find_reason(dict(row), capacity),
            until=row["ready_at"],
            code=row["code"],
            pool=row["pool"],
        )
        for row in waiting
    ]


def find_reason(job: Mapping[str, Any], capacity: CapacitySnapshot) -> WaitReason:
    able = [worker for worker in capacity.live if worker.serves(job["pipeline"])]
    serving = [worker for worker in able if job["queue"] in worker.queues]
    if job["parked"] and job["asked"]:
        return WaitReason.PERSON
    if job["parked"]:
        return WaitReason.EXTERNAL_WORK if able else WaitReason.NO_WORKER  # a worker of any queue polls it
    if job["code"] == "UNDEFINED_STEP":
        return WaitReason.UNDEFINED_STEP
    if job["ready_at"] is not None:
        return WaitReason.PROVIDER_REJECTED if job["code"] == "PROVIDER_REJECTED" else WaitReason.DELAYED
    if not serving:
        return WaitReason.NO_WORKER
    if (held_up := _find_pool_reason(capacity.pools.get(job["pool"]), job["slots"], job["room"])) is not None:
        return held_up
    if job["suspect"]:
        return WaitReason.SUSPECT
    if all(capacity.held.get(worker.id, 0) >= worker.concurrency for worker in serving):
        return WaitReason.CAPACITY
    return WaitReason.NOT_CLAIMED


def _find_pool_reason(pool: PoolRecord | None, slots: int, room: int | None) -> WaitReason | None:
    """Return why a pool delays a job, or None. `room` is the rest of the tenant's share, if it has one."""
    if pool is None:
        return None
    if pool.paused_until is not None:
        return WaitReason.POOL_PAUSED
    if pool.trouble is not None:
        return WaitReason.PROVIDER_REJECTED if pool.trouble == "PROVIDER_REJECTED" else WaitReason.PROVIDER_DOWN
    if slots > min(pool.capacity, pool.per_tenant or pool.capacity):
        return WaitReason.POOL_TOO_SMALL
    if slots > pool.free:
        return WaitReason.POOL
    if room is not None and slots > room:
        return WaitReason.POOL_SHARE
    return WaitReason.POOL_RATE if pool.rate is not None else None
