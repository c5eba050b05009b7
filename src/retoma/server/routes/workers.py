"""Who works, and what waits for them."""

from __future__ import annotations

from typing import Annotated

from fastapi import APIRouter

from retoma.figures import QueueFigures
from retoma.records import WorkerRecord
from retoma.server.callers import Caller, caller
from retoma.server.shapes import QueueList, QueueShape, WorkerList, WorkerShape

router = APIRouter(tags=["workers"])
Reader = Annotated[Caller, caller("pools:read")]


@router.get("/queues", summary="What each queue holds")
async def list_queues(by: Reader) -> QueueList:
    return QueueList(queues=[_queue(queue) for queue in await by.client.queues(tenant=by.tenant)])


@router.get("/workers", summary="List the workers that live")
async def list_workers(by: Reader) -> WorkerList:
    return WorkerList(workers=[_worker(by, worker) for worker in await by.client.workers()])


def _queue(queue: QueueFigures) -> QueueShape:
    return QueueShape(
        queue=queue.queue,
        ready=queue.jobs.get("ready", 0),
        running=queue.jobs.get("running", 0),
        delayed=queue.jobs.get("delayed", 0),
        oldest_seconds=None if queue.oldest_for is None else queue.oldest_for.total_seconds(),
        workers=queue.workers,
    )


def _worker(by: Caller, worker: WorkerRecord) -> WorkerShape:
    """Its name tells of the machine that it runs on, and so is for keys of all tenants."""
    return WorkerShape(
        id=worker.id,
        name=worker.name if by.tenant is None else f"worker {worker.id}",
        queues=worker.queues,
        concurrency=worker.concurrency,
        started_at=worker.started_at,
        silent_seconds=worker.silent_for.total_seconds(),
    )
