"""Pools, workers, and how the whole stands."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime

from retoma.client.base import Base
from retoma.define.pool import MAX_CAPACITY, MIN_RATE
from retoma.errors import InvalidInput, NotFound
from retoma.metrics import Metrics, MetricsSnapshot, QueueMetrics
from retoma.records import PipelineMetrics, PoolRecord, WorkerRecord
from retoma.store import metrics, pools, workers


class Capacity(Base):
    async def pools(self, name: str | None = None, *, tenant: str | None = None) -> list[PoolRecord]:
        """All pools, or the one of this name. With `tenant`, only its jobs count among those that wait."""
        return await pools.list_pools(self.database, name, await self._tenant_filter(tenant))

    async def set_pool(
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
        if not await pools.update_pool(self.database, name, **numbers, resume=resume):  # type: ignore[arg-type]
            raise NotFound(f"there is no pool {name!r}")
        self._starter.notify_workers()
        (found,) = await self.pools(name)
        return found

    async def workers(self) -> list[WorkerRecord]:
        """The workers that live."""
        return await workers.list_alive(self.database)

    async def queues(self, *, tenant: str | None = None) -> list[QueueMetrics]:
        """Every queue that a step is on or a worker serves, as it was at most a second ago; of one tenant, as it is."""
        if (owner := await self._tenant_filter(tenant)) is not None:
            return await metrics.list_queues_of_tenant(self.database, owner, self.heartbeat_timeout)
        return (await self.figures()).queues

    async def figures(self) -> Metrics:
        """What metrics show, of all tenants, as it was at most a second ago."""
        return await self._metrics_reader.read()

    async def standing(self) -> MetricsSnapshot:
        """The part of the figures that people look at, as it was at most a second ago; it costs less."""
        return await self._snapshot_reader.read()

    async def pipeline_figures(
        self, pipeline: str, since: datetime, *, exclude_steps: Sequence[str] = ()
    ) -> PipelineMetrics:
        """Return how the runs of a pipeline went that ended since then or are open: an open run counts with the steps
        that it has finished. The time of the steps `without` is not counted, as that of reviews is not; an open run
        that has only these left is timed."""
        return await metrics.get_pipeline_metrics(self.database, pipeline, since, exclude_steps)
