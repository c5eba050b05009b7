"""Pools, workers, and how the whole stands."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime

from retoma.client.base import Base
from retoma.define.pool import LARGEST_CAPACITY, LOWEST_RATE
from retoma.errors import InvalidInput, NotFound
from retoma.figures import Figures, QueueFigures, Standing
from retoma.records import PipelineFigures, PoolRecord, WorkerRecord
from retoma.store import gauges, pools, workers


class Capacity(Base):
    async def pools(self, name: str | None = None, *, tenant: str | None = None) -> list[PoolRecord]:
        """All pools, or the one of this name. With `tenant`, only its jobs count among those that wait."""
        return await pools.listed(self.database, name, await self._tenant_filter(tenant))

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
            if given is not None and not (what == "burst") <= given <= LARGEST_CAPACITY:
                raise InvalidInput(f"a pool's {what} goes up to {LARGEST_CAPACITY:,}; given: {given!r:.40}")
        if rate and rate < LOWEST_RATE:
            raise InvalidInput(f"a pool's rate is 0, for none, or at least {LOWEST_RATE:f}; given: {rate!r}")
        if not await pools.set_numbers(self.database, name, **numbers, resume=resume):  # type: ignore[arg-type]
            raise NotFound(f"there is no pool {name!r}")
        self._starter.tell_of_work()
        (found,) = await self.pools(name)
        return found

    async def workers(self) -> list[WorkerRecord]:
        """The workers that live."""
        return await workers.alive(self.database)

    async def queues(self, *, tenant: str | None = None) -> list[QueueFigures]:
        """Every queue that a step is on or a worker serves, as it was at most a second ago; of one tenant, as it is."""
        if (owner := await self._tenant_filter(tenant)) is not None:
            return await gauges.queues_of_tenant(self.database, owner, self.silence)
        return (await self.figures()).queues

    async def figures(self) -> Figures:
        """What metrics show, of all tenants, as it was at most a second ago."""
        return await self._figures.read()

    async def standing(self) -> Standing:
        """The part of the figures that people look at, as it was at most a second ago; it costs less."""
        return await self._standing.read()

    async def pipeline_figures(self, pipeline: str, since: datetime, *, without: Sequence[str] = ()) -> PipelineFigures:
        """Return how the runs of a pipeline went that ended since then or are open: an open run counts with the steps
        that it has finished. The time of the steps `without` is not counted, as that of reviews is not; an open run
        that has only these left is timed."""
        return await gauges.of_pipeline(self.database, pipeline, since, without)
