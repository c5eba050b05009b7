"""Workers and queues."""

from __future__ import annotations

from typing import Annotated

from fastapi import APIRouter, Path

from retoma import records
from retoma.metrics import QueueMetrics
from retoma.records import AutoscaleAdvice, WorkerStacks
from retoma.server.principal import Principal, require_scope
from retoma.server.problems import document_problems
from retoma.server.schemas import Name, PauseRequest, QueueList, QueueRequest, QueueStatus, Worker, WorkerList

router = APIRouter(tags=["workers"])
Reader = Annotated[Principal, require_scope("pools:read")]
MetricReader = Annotated[Principal, require_scope("metrics:read")]
Writer = Annotated[Principal, require_scope("pools:write")]
Administrator = Annotated[Principal, require_scope("admin")]
QueueName = Annotated[Name, Path()]
WorkerId = Annotated[int, Path(ge=1)]


@router.get("/queues", summary="List queues with their job counts")
async def list_queues(by: Reader) -> QueueList:
    return QueueList(queues=[_serialize_queue(queue) for queue in await by.client.queues.list()])


@router.put("/queues/{queue}", summary="Limit the concurrency of a queue", responses=document_problems(404))
async def update_queue(queue: QueueName, body: QueueRequest, by: Writer) -> QueueStatus:
    return _serialize_queue(await by.client.queues.update(queue, concurrency=body.concurrency))


@router.post("/queues/{queue}/pause", summary="Start no more jobs of a queue", responses=document_problems(404))
async def pause_queue(queue: QueueName, body: PauseRequest, by: Writer) -> QueueStatus:
    return _serialize_queue(await by.client.queues.pause(queue, by=by.name, reason=body.reason))


@router.post("/queues/{queue}/resume", summary="Start jobs of a paused queue again", responses=document_problems(404))
async def resume_queue(queue: QueueName, by: Writer) -> QueueStatus:
    return _serialize_queue(await by.client.queues.resume(queue, by=by.name))


@router.get(
    "/autoscale/{queue}", summary="Get the number of workers that a queue needs", responses=document_problems(404)
)
async def get_autoscale_advice(queue: QueueName, by: MetricReader) -> AutoscaleAdvice:
    return await by.client.queues.get_autoscale_advice(queue)


@router.get("/workers", summary="List running workers")
async def list_workers(by: Reader) -> WorkerList:
    return WorkerList(workers=[_serialize_worker(worker) for worker in await by.client.workers.list()])


@router.post(
    "/workers/{worker}/drain", summary="Let a worker finish its jobs and exit", responses=document_problems(404)
)
async def drain_worker(worker: WorkerId, by: Writer) -> Worker:
    return _serialize_worker(await by.client.workers.drain(worker, by=by.name))


@router.post(
    "/workers/{worker}/stacks", summary="Ask a worker where its running jobs are", responses=document_problems(404)
)
async def request_worker_stacks(worker: WorkerId, by: Administrator) -> WorkerStacks:
    """The worker answers with its next heartbeat. Until then, `answered_at` is null."""
    return await by.client.workers.request_stacks(worker, by=by.name)


@router.get(
    "/workers/{worker}/stacks",
    summary="Get where the jobs of a worker were when it was asked",
    responses=document_problems(404),
)
async def get_worker_stacks(worker: WorkerId, by: Administrator) -> WorkerStacks:
    return await by.client.workers.get_stacks(worker)


def _serialize_queue(queue: QueueMetrics) -> QueueStatus:
    counts = {state: queue.jobs.get(state, 0) for state in ("ready", "running", "delayed")}
    return QueueStatus(
        **counts,
        oldest_seconds=None if queue.oldest_for is None else queue.oldest_for.total_seconds(),
        **vars(queue) | {"concurrency": queue.concurrency_limit},
    )


def _serialize_worker(worker: records.Worker) -> Worker:
    return Worker(heartbeat_age_seconds=worker.heartbeat_age.total_seconds(), **vars(worker))
