"""Find why a job does not run although its dependencies are met."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import timedelta
from typing import Any
from uuid import UUID

from retoma.records import Pool, Wait, WaitReason, Worker
from retoma.records.wait import NO_PROVIDER
from retoma.store import pools, queues, waiting_jobs, workers
from retoma.store.database import Database
from retoma.store.queues import RestrictedQueue

_DELAY_REASONS = {"PROVIDER_REJECTED": WaitReason.PROVIDER_REJECTED, NO_PROVIDER: WaitReason.NO_PROVIDER}


@dataclass(frozen=True)
class CapacitySnapshot:
    """Live workers, the number of jobs that each holds, the pools, and the queues that people have restricted."""

    live: Sequence[Worker]
    held: Mapping[int, int]
    pools: Mapping[str, Pool]
    queues: Mapping[str, RestrictedQueue]


async def list_waits(database: Database, run: UUID, heartbeat_timeout: timedelta) -> list[Wait]:
    """Return why jobs of a run wait. A worker counts if it sent a heartbeat within `heartbeat_timeout`."""
    waiting = await waiting_jobs.list_for_run(database, run)
    if not waiting:
        return []
    capacity = CapacitySnapshot(
        live=[worker for worker in await workers.list_alive(database) if worker.is_alive(heartbeat_timeout)],
        held=await waiting_jobs.count_held_jobs(database),
        pools={pool.name: pool for pool in await pools.list_pools(database)},
        queues={queue.name: queue for queue in await queues.list_restricted_queues(database)},
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
            child=row["child"],
        )
        for row in waiting
    ]


def find_reason(job: Mapping[str, Any], capacity: CapacitySnapshot) -> WaitReason:
    able = [worker for worker in capacity.live if worker.serves(job["pipeline"])]
    serving = [worker for worker in able if job["queue"] in worker.queues and not worker.is_draining]
    if job["parked"] and job["in_review"]:
        return WaitReason.PERSON
    if job["parked"] and able and job["child"] is not None:
        return WaitReason.CHILD_RUN
    if job["parked"] and able:  # a worker of any queue polls it
        return WaitReason.CLEANUP if job["cleaning_up"] else WaitReason.EXTERNAL_WORK
    if job["parked"]:
        return WaitReason.NO_WORKER
    queue = capacity.queues.get(job["queue"])
    if queue is not None and queue.is_paused:
        return WaitReason.QUEUE_PAUSED
    if job["code"] == "UNDEFINED_STEP":
        return WaitReason.UNDEFINED_STEP
    if job["ready_at"] is not None:
        return _DELAY_REASONS.get(job["code"], WaitReason.DELAYED)
    if not serving:
        return WaitReason.NO_WORKER
    if queue is not None and queue.is_full:
        return WaitReason.QUEUE_FULL
    if (held_up := _find_pool_reason(capacity.pools.get(job["pool"]), job["slots"], job["tenant_slots"])) is not None:
        return held_up
    if job["suspect"]:
        return WaitReason.SUSPECT
    if all(capacity.held.get(worker.id, 0) >= worker.concurrency for worker in serving):
        return WaitReason.CAPACITY
    return WaitReason.NOT_CLAIMED


def _find_pool_reason(pool: Pool | None, slots: int, tenant_slots: int | None) -> WaitReason | None:
    """Return why a pool delays a job, or None. `tenant_slots` is the rest of the tenant's share, if it has one."""
    if pool is None:
        return None
    if pool.paused_until is not None:
        return WaitReason.POOL_PAUSED
    if pool.problem is not None:
        return WaitReason.PROVIDER_REJECTED if pool.problem == "PROVIDER_REJECTED" else WaitReason.PROVIDER_DOWN
    if slots > min(pool.capacity, pool.per_tenant or pool.capacity):
        return WaitReason.POOL_TOO_SMALL
    if slots > pool.free:
        return WaitReason.POOL
    if tenant_slots is not None and slots > tenant_slots:
        return WaitReason.POOL_SHARE
    return WaitReason.POOL_RATE if pool.rate is not None else None
