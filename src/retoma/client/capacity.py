"""`client.pools`, `client.workers` and `client.queues`."""

from __future__ import annotations

import asyncio
from dataclasses import replace
from datetime import timedelta

from retoma.client.audit_values import keep_set
from retoma.client.core import Namespace
from retoma.client.validation import check_name, is_name
from retoma.define.pool import MAX_CAPACITY, MIN_RATE
from retoma.engine.queue_load import get_advice
from retoma.errors import InvalidInput, NotFound
from retoma.logs import get_logger
from retoma.metrics import QueueMetrics
from retoma.records import AuditAction, AutoscaleAdvice, Pool, PoolJob, RunningJob, Worker, WorkerStacks
from retoma.store import metrics, pools, queues, workers

log = get_logger(__name__)
MAX_WORKER = 2**31 - 1  # as the column holds it
STACK_POLL = timedelta(seconds=0.2)


class Pools(Namespace):
    async def update(
        self,
        name: str,
        *,
        capacity: int | None = None,
        rate: float | None = None,
        burst: int | None = None,
        per_tenant: int | None = None,
        resume: bool = False,
    ) -> Pool:
        """Change a pool while it is in use. Running jobs keep their slots; waiting jobs start at once if there is room.

        A `rate` or `per_tenant` (the slots that one tenant may hold) of 0 means no limit. `resume` ends a pause or an
        open circuit breaker.
        """
        self._core.require_all_tenants()
        numbers = {"capacity": capacity, "rate": rate, "burst": burst, "per_tenant": per_tenant}
        for field, number in numbers.items():
            if number is not None and not (field == "burst") <= number <= MAX_CAPACITY:
                raise InvalidInput(f"a pool's {field} is at most {MAX_CAPACITY:,}, not {number!r:.40}")
        if rate and rate < MIN_RATE:
            raise InvalidInput(f"a pool's rate is 0 for no limit, or at least {MIN_RATE:f}, not {rate!r}")
        before = next(iter(await self.list(name)), None)
        recording = self._recording(
            "set_pool",
            AuditAction.POOL_UPDATE,
            name,
            before=None if before is None else {field: getattr(before, field) for field in numbers},
            after={field: number for field, number in numbers.items() if number is not None}
            | keep_set(resume=resume or None),
            applies=bool,
        )
        if not await pools.update_pool(recording, name, resume=resume, **numbers):
            raise NotFound(f"there is no pool {name!r}")
        self._core.starter.notify_workers()
        (pool,) = await self.list(name)
        return pool

    async def list_holders(self, *, tenant: str | None = None, limit: int = 500) -> list[PoolJob]:
        """Return the jobs that hold slots, by pool, the oldest first."""
        return await pools.list_holders(self._database, await self._core.find_tenants(tenant), limit)

    async def list_waiters(self, *, tenant: str | None = None, limit: int = 5) -> list[PoolJob]:
        """Return the first `limit` jobs of each pool that wait for its slots."""
        return await pools.list_waiters(self._database, await self._core.find_tenants(tenant), limit)

    async def list(self, name: str | None = None, *, tenant: str | None = None) -> list[Pool]:
        """Return all pools, or the one with this name. With `tenant`, `waiting` counts only its jobs."""
        return await pools.list_pools(self._database, name, await self._core.find_tenants(tenant))


class Workers(Namespace):
    async def drain(self, worker: int, *, by: str | None = None) -> Worker:
        """Let a worker finish its jobs, claim nothing more, and exit. It reads the request with its next heartbeat."""
        self._core.require_all_tenants()
        author = self._get_author(by)
        check_name("name", author)
        recording = self._recording("request_drain", AuditAction.WORKER_DRAIN, worker)
        if 0 < worker <= MAX_WORKER and await workers.request_drain(recording, worker, author):
            log.info("drain_requested", message="the worker finishes its jobs and exits", worker=worker, by=author)
        for each in await self.list():
            if each.id == worker:
                return each
        raise NotFound(f"there is no running worker {worker}")

    async def list_jobs(self, *, limit: int = 500) -> list[RunningJob]:
        """Return the jobs that workers run now, the oldest first."""
        return await workers.list_running_jobs(self._database, await self._core.find_tenants(), limit)

    async def request_stacks(self, worker: int, *, by: str | None = None) -> WorkerStacks:
        """Ask a worker where its running jobs are. It answers with its next heartbeat: see `list_stacks`."""
        self._core.require_all_tenants()
        author = self._get_author(by)
        check_name("name", author)
        if 0 < worker <= MAX_WORKER:
            recording = self._recording("request_stacks", AuditAction.WORKER_STACKS, worker, applies=bool)
            await workers.request_stacks(recording, worker, author)
            log.info("stacks_requested", message="the worker reports where its jobs are", worker=worker, by=author)
        return await self.get_stacks(worker)

    async def wait_for_stacks(self, worker: int, timeout: timedelta) -> WorkerStacks:
        """Return the answer to `request_stacks`, or the request without an answer if the time is over."""
        waited = timedelta()
        while True:
            found = await self.get_stacks(worker)
            if found.answered_at is not None or waited >= timeout:
                return found
            waited += STACK_POLL
            await asyncio.sleep(STACK_POLL.total_seconds())

    async def get_stacks(self, worker: int) -> WorkerStacks:
        """Return the last request for stacks of a running worker, with its answer. Raise NotFound without one."""
        self._core.require_all_tenants()
        found = await workers.list_stacks(self._database, worker) if 0 < worker <= MAX_WORKER else []
        if not found:
            raise NotFound(f"nobody has asked for the stacks of a running worker {worker}")
        return found[0]

    async def list_stacks(self) -> list[WorkerStacks]:
        """Return the last request for stacks of each running worker that has one."""
        self._core.require_all_tenants()
        return await workers.list_stacks(self._database)

    async def list_busy(self) -> set[str]:
        """Return the names of the workers that run jobs now."""
        self._core.require_all_tenants()
        return await workers.list_busy(self._database)

    async def list(self) -> list[Worker]:
        """Return the workers that are alive. A client for some tenants sees no names: they reveal the hosts."""
        found = await workers.list_alive(self._database)
        return found if self._core.limit is None else [replace(each, name=f"worker {each.id}") for each in found]


class Queues(Namespace):
    async def list(self, *, tenant: str | None = None) -> list[QueueMetrics]:
        """Return every queue that a step uses or a worker serves. Up to a second old; exact for a single tenant."""
        if (tenants := await self._core.find_tenants(tenant)) is not None:
            found = await metrics.list_queues_of_tenants(self._database, tenants, self._core.heartbeat_timeout)
            return found if self._core.limit is None else [_hide_pause(queue) for queue in found]
        return (await self._core.metrics_reader.read()).queues

    async def get_autoscale_advice(self, *queues: str) -> AutoscaleAdvice:
        """Return how many workers a queue needs now, and why, or how many workers that serve all of several queues.

        Raise NotFound if no step or worker uses any of the queues, and the application declares none of them. It is for
        all tenants. Ask for it as often as you like: it needs no state of earlier calls.
        """
        self._core.require_all_tenants()
        return await get_advice(
            self._database,
            queues,
            await self._core.job_type_reader.read(),
            self._core.heartbeat_timeout,
            declared=self._core.app.queues if self._core.app else (),
        )

    async def update(self, queue: str, *, concurrency: int) -> QueueMetrics:
        """Limit how many jobs of a queue run at once, over all workers. 0 removes the limit.

        Running jobs count, and finish even if there are more than the limit.
        """
        self._core.require_all_tenants()
        if not 0 <= concurrency <= MAX_CAPACITY:
            raise InvalidInput(f"a queue's concurrency is at most {MAX_CAPACITY:,}, not {concurrency!r:.40}")
        await self._require(queue)
        before = await self._find(queue)
        recording = self._recording(
            "limit_queue",
            AuditAction.QUEUE_UPDATE,
            queue,
            before={"concurrency": before.concurrency_limit} if before else None,
            after={"concurrency": concurrency or None},
            applies=lambda _: True,
        )
        await queues.limit_queue(recording, queue, concurrency or None)
        return await self._reload(queue)

    async def pause(self, queue: str, *, by: str | None = None, reason: str | None = None) -> QueueMetrics:
        """Start no more jobs of this queue, on any worker, until it is resumed. Running jobs finish.

        A queue that is already paused keeps its first pause.
        """
        self._core.require_all_tenants()
        author = self._get_author(by)
        check_name("name", author)
        check_name("reason", reason)
        await self._require(queue)
        recording = self._recording(
            "pause_queue", AuditAction.QUEUE_PAUSE, queue, after=keep_set(reason=reason), applies=bool
        )
        await queues.pause_queue(recording, queue, author, reason)
        log.info("queue_paused", message="no job of this queue starts until it is resumed", queue=queue, by=author)
        return await self._reload(queue)

    async def resume(self, queue: str, *, by: str | None = None) -> QueueMetrics:
        """Start jobs of a paused queue again."""
        self._core.require_all_tenants()
        author = self._get_author(by)
        check_name("name", author)
        await self._require(queue)
        recording = self._recording("resume_queue", AuditAction.QUEUE_RESUME, queue, applies=bool)
        await queues.resume_queue(recording, queue)
        log.info("queue_resumed", message="jobs of this queue start again", queue=queue, by=author)
        return await self._reload(queue)

    async def _require(self, queue: str) -> None:
        if not is_name(queue) or not await queues.has_queue(self._database, queue):
            raise NotFound(f"there is no queue {queue!r:.80}: no step uses it, and no worker serves it")

    async def _reload(self, queue: str) -> QueueMetrics:
        """Return the queue after a change, of which its workers and the pages learn at once."""
        self._core.starter.notify_workers()
        self._core.expire_metrics()
        changed = await self._find(queue)
        assert changed is not None
        return changed

    async def _find(self, queue: str) -> QueueMetrics | None:
        return next((each for each in await self.list() if each.queue == queue), None)


def _hide_pause(queue: QueueMetrics) -> QueueMetrics:
    """Hide who paused the queue and why, which may name other tenants."""
    return replace(queue, paused_by=None, pause_reason=None)
