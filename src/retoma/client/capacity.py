"""`client.pools`, `client.workers` and `client.queues`."""

from __future__ import annotations

from retoma.client.core import Namespace
from retoma.define.pool import MAX_CAPACITY, MIN_RATE
from retoma.errors import InvalidInput, NotFound
from retoma.metrics import QueueMetrics
from retoma.records import PoolRecord, WorkerRecord
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
    ) -> PoolRecord:
        """Change a pool while it is in use: holders may finish, and waiters begin at once if there is room.

        A `rate` of 0 means none, as does `per_tenant`, the most that one tenant holds; `resume` ends a pause that a
        provider asked for.
        """
        numbers = {"capacity": capacity, "rate": rate, "burst": burst, "per_tenant": per_tenant}
        for what, given in numbers.items():
            if given is not None and not (what == "burst") <= given <= MAX_CAPACITY:
                raise InvalidInput(f"a pool's {what} goes up to {MAX_CAPACITY:,}; given: {given!r:.40}")
        if rate and rate < MIN_RATE:
            raise InvalidInput(f"a pool's rate is 0, for none, or at least {MIN_RATE:f}; given: {rate!r}")
        if not await pools.update_pool(self._database, name, **numbers, resume=resume):  # type: ignore[arg-type]
            raise NotFound(f"there is no pool {name!r}")
        self._core.starter.notify_workers()
        (found,) = await self.list(name)
        return found

    async def list(self, name: str | None = None, *, tenant: str | None = None) -> list[PoolRecord]:
        """All pools, or the one of this name. With `tenant`, only its jobs count among those that wait."""
        return await pools.list_pools(self._database, name, await self._core.find_tenant_id(tenant))


class Workers(Namespace):
    async def list(self) -> list[WorkerRecord]:
        """The workers that live."""
        return await workers.list_alive(self._database)


class Queues(Namespace):
    async def list(self, *, tenant: str | None = None) -> list[QueueMetrics]:
        """Every queue that a step is on or a worker serves, as it was at most a second ago; of one tenant, as it is."""
        if (owner := await self._core.find_tenant_id(tenant)) is not None:
            return await metrics.list_queues_of_tenant(self._database, owner, self._core.heartbeat_timeout)
        return (await self._core.metrics_reader.read()).queues
