"""`client.pools`, `client.workers` and `client.queues`."""

from __future__ import annotations

from retoma.client.core import Namespace
from retoma.define.pool import MAX_CAPACITY, MIN_RATE
from retoma.engine.queue_load import get_advice
from retoma.errors import InvalidInput, NotFound
from retoma.metrics import QueueMetrics
from retoma.records import AutoscaleAdvice, Pool, Worker
from retoma.store import metrics, pools, workers


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
        numbers = {"capacity": capacity, "rate": rate, "burst": burst, "per_tenant": per_tenant}
        for field, number in numbers.items():
            if number is not None and not (field == "burst") <= number <= MAX_CAPACITY:
                raise InvalidInput(f"a pool's {field} is at most {MAX_CAPACITY:,}, not {number!r:.40}")
        if rate and rate < MIN_RATE:
            raise InvalidInput(f"a pool's rate is 0 for no limit, or at least {MIN_RATE:f}, not {rate!r}")
        if not await pools.update_pool(self._database, name, resume=resume, **numbers):
            raise NotFound(f"there is no pool {name!r}")
        self._core.starter.notify_workers()
        (pool,) = await self.list(name)
        return pool

    async def list(self, name: str | None = None, *, tenant: str | None = None) -> list[Pool]:
        """Return all pools, or the one with this name. With `tenant`, `waiting` counts only its jobs."""
        return await pools.list_pools(self._database, name, await self._core.find_tenant_id(tenant))


class Workers(Namespace):
    async def list(self) -> list[Worker]:
        """Return the workers that are alive."""
        return await workers.list_alive(self._database)

    async def list_busy(self) -> set[str]:
        """Return the names of the workers that run jobs now."""
        return await workers.list_busy(self._database)


class Queues(Namespace):
    async def list(self, *, tenant: str | None = None) -> list[QueueMetrics]:
        """Return every queue that a step uses or a worker serves. Up to a second old; exact for a single tenant."""
        if (owner := await self._core.find_tenant_id(tenant)) is not None:
            return await metrics.list_queues_of_tenant(self._database, owner, self._core.heartbeat_timeout)
        return (await self._core.metrics_reader.read()).queues

    async def get_autoscale_advice(self, queue: str) -> AutoscaleAdvice:
        """Return how many workers a queue needs now, and why. Raise NotFound if no step or worker uses the queue.

        It is for all tenants. Ask for it as often as you like: it needs no state of earlier calls.
        """
        return await get_advice(
            self._database, queue, await self._core.job_type_reader.read(), self._core.heartbeat_timeout
        )
