"""Why a job that needs nothing more does not run."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from datetime import datetime, timedelta
from uuid import UUID

from retoma.records import Wait, WaitReason, WorkerRecord
from retoma.store import waits, workers
from retoma.store.database import Database


async def of_run(database: Database, run: UUID, silence: timedelta) -> list[Wait]:
    """A worker that has been silent for longer than `silence` does not count."""
    waiting = await waits.of_run(database, run)
    if not waiting:
        return []
    live = [worker for worker in await workers.listed(database) if worker.silent_for <= silence]
    held = await waits.held(database)
    return [
        Wait(
            step=row["step"],
            queue=row["queue"],
            jobs=row["jobs"],
            item=row["item"],
            reason=reason(row["queue"], row["code"], row["ready_at"], row["suspect"], live, held),
            until=row["ready_at"],
            code=row["code"],
        )
        for row in waiting
    ]


def reason(
    queue: str,
    code: str | None,
    ready_at: datetime | None,
    suspect: bool,
    live: Sequence[WorkerRecord],
    held: Mapping[int, int],
) -> WaitReason:
    serving = [worker for worker in live if queue in worker.queues]
    if code == "UNDEFINED_STEP":
        return WaitReason.UNDEFINED_STEP
    if ready_at is not None:
        return WaitReason.DELAYED
    if not serving:
        return WaitReason.NO_WORKER
    if suspect:
        return WaitReason.SUSPECT
    if all(held.get(worker.id, 0) >= worker.concurrency for worker in serving):
        return WaitReason.CAPACITY
    return WaitReason.NOT_TAKEN
