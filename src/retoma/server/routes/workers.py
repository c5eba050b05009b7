"""Workers and queues."""

from __future__ import annotations

from typing import Annotated

from fastapi import APIRouter, Path

from retoma import records
from retoma.metrics import QueueMetrics
from retoma.records import AutoscaleAdvice
from retoma.server.principal import Principal, require_scope
from retoma.server.problems import document_problems
from retoma.server.schemas import Name, QueueList, QueueStatus, Worker, WorkerList

router = APIRouter(tags=["workers"])
Reader = Annotated[Principal, require_scope("pools:read")]
MetricReader = Annotated[Principal, require_scope("metrics:read")]


@router.get("/queues", summary="List queues with their job counts")
async def list_queues(by: Reader) -> QueueList:
    return QueueList(queues=[_serialize_queue(queue) for queue in await by.client.queues.list(tenant=by.tenant)])


@router.get(
    "/autoscale/{queue}", summary="Get the number of workers that a queue needs", responses=document_problems(404)
)
async def get_autoscale_advice(queue: Annotated[Name, Path()], by: MetricReader) -> AutoscaleAdvice:
    return await by.client.queues.get_autoscale_advice(queue)


@router.get("/workers", summary="List running workers")
async def list_workers(by: Reader) -> WorkerList:
    return WorkerList(workers=[_serialize_worker(by, worker) for worker in await by.client.workers.list()])


def _serialize_queue(queue: QueueMetrics) -> QueueStatus:
    return QueueStatus(
        queue=queue.queue,
        ready=queue.jobs.get("ready", 0),
        running=queue.jobs.get("running", 0),
        delayed=queue.jobs.get("delayed", 0),
        oldest_seconds=None if queue.oldest_for is None else queue.oldest_for.total_seconds(),
        workers=queue.workers,
    )


def _serialize_worker(by: Principal, worker: records.Worker) -> Worker:
    """Hide the name from keys of one tenant, because it reveals the worker's host."""
    return Worker(
        id=worker.id,
        name=worker.name if by.tenant is None else f"worker {worker.id}",
        queues=worker.queues,
        concurrency=worker.concurrency,
        started_at=worker.started_at,
        heartbeat_age_seconds=worker.heartbeat_age.total_seconds(),
    )
