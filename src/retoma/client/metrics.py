"""`client.metrics`: the metrics that Prometheus and the overview show."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime, timedelta

from retoma.client.core import Namespace, as_list
from retoma.engine.metrics import JOB_TYPE_WINDOW, read_snapshot
from retoma.metrics import (
    JobTypeMetrics,
    MetricCounter,
    Metrics,
    MetricsSnapshot,
    QueueSample,
    QueueTimes,
    ReviewDay,
    ReviewerMetrics,
)
from retoma.records import PipelineMetrics
from retoma.store import metrics, review_metrics

REVIEW_TARGET = timedelta(hours=2)


class MetricQueries(Namespace):
    async def get_all(self) -> Metrics:
        """Return the metrics of all tenants, at most a second old."""
        self._core.require_all_tenants()
        return await self._core.metrics_reader.read()

    async def get_snapshot(self) -> MetricsSnapshot:
        """Return the metrics that the pages show, at most a second old. Cheaper than `get_all`."""
        if (tenants := await self._core.find_tenants()) is not None:
            return await read_snapshot(self._database, self._core.heartbeat_timeout, tenants)
        return await self._core.snapshot_reader.read()

    async def list_job_types(self, window: timedelta = JOB_TYPE_WINDOW) -> list[JobTypeMetrics]:
        """Return the throughput, queue time and processing time of every step that workers process.

        They are of the jobs that ended within `window`. If many events were written since, they are of a shorter time.
        """
        self._core.require_all_tenants()
        return await metrics.list_job_types(self._database, window)

    async def list_queue_times(self, window: timedelta = JOB_TYPE_WINDOW) -> dict[str, QueueTimes]:
        """Return the throughput, queue time and processing time of whole queues, as `list_job_types` does of steps.

        A queue of which no job ended is left out.
        """
        self._core.require_all_tenants()
        return await metrics.list_queue_times(self._database, window)

    async def list_queue_samples(self, since: datetime, *, queue: str | None = None) -> list[QueueSample]:
        """Return how many jobs the queues had in each minute since then, of at most the last day."""
        self._core.require_all_tenants()
        return await metrics.list_queue_samples(self._database, since, queue)

    async def list_counters(self) -> list[MetricCounter]:
        """Return how often something ended since the database was created, and how long it took."""
        self._core.require_all_tenants()
        return await metrics.list_counters(self._database)

    async def list_reviewers(
        self,
        since: datetime,
        *,
        target: timedelta = REVIEW_TARGET,
        tenant: str | None = None,
        pipeline: str | Sequence[str] | None = None,
    ) -> list[ReviewerMetrics]:
        """Return what each person has decided since then, and the load now. The first row is of all people together.

        `target` is the time within which a review without a deadline should be decided.
        """
        return await review_metrics.list_reviewers(
            self._database, since, target, await self._core.find_tenants(tenant), as_list(pipeline)
        )

    async def list_review_days(
        self,
        since: datetime,
        zone: str = "UTC",
        *,
        tenant: str | None = None,
        pipeline: str | Sequence[str] | None = None,
    ) -> list[ReviewDay]:
        """Return the decisions of each day since then, by the calendar of a time zone."""
        return await review_metrics.list_days(
            self._database, since, zone, await self._core.find_tenants(tenant), as_list(pipeline)
        )

    async def get_pipeline(
        self, pipeline: str, since: datetime, *, exclude_steps: Sequence[str] = ()
    ) -> PipelineMetrics:
        """Return metrics of the runs of a pipeline that ended since then or are open. An open run counts with its
        finished steps. Durations exclude reviews and `exclude_steps`; an open run that has only these left is timed."""
        tenants = await self._core.find_tenants()
        return await metrics.get_pipeline_metrics(self._database, pipeline, since, exclude_steps, tenants)
