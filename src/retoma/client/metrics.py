"""`client.metrics`: the metrics that Prometheus and the overview show."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime, timedelta

from retoma.client.core import Namespace
from retoma.engine.metrics import JOB_TYPE_WINDOW
from retoma.metrics import JobTypeMetrics, MetricCounter, Metrics, MetricsSnapshot, QueueSample, QueueTimes
from retoma.records import PipelineMetrics
from retoma.store import metrics


class MetricQueries(Namespace):
    async def get_all(self) -> Metrics:
        """Return the metrics of all tenants, at most a second old."""
        return await self._core.metrics_reader.read()

    async def get_snapshot(self) -> MetricsSnapshot:
        """Return the metrics that the pages show, at most a second old. Cheaper than `get_all`."""
        return await self._core.snapshot_reader.read()

    async def list_job_types(self, window: timedelta = JOB_TYPE_WINDOW) -> list[JobTypeMetrics]:
        """Return the throughput, queue time and processing time of every step that workers process.

        They are of the jobs that ended within `window`. If many events were written since, they are of a shorter time.
        """
        return await metrics.list_job_types(self._database, window)

    async def list_queue_times(self, window: timedelta = JOB_TYPE_WINDOW) -> dict[str, QueueTimes]:
        """Return the throughput, queue time and processing time of whole queues, as `list_job_types` does of steps.

        A queue of which no job ended is left out.
        """
        return await metrics.list_queue_times(self._database, window)

    async def list_queue_samples(self, since: datetime, *, queue: str | None = None) -> list[QueueSample]:
        """Return how many jobs the queues had in each minute since then, of at most the last day."""
        return await metrics.list_queue_samples(self._database, since, queue)

    async def list_counters(self) -> list[MetricCounter]:
        """Return how often something ended since the database was created, and how long it took."""
        return await metrics.list_counters(self._database)

    async def get_pipeline(
        self, pipeline: str, since: datetime, *, exclude_steps: Sequence[str] = ()
    ) -> PipelineMetrics:
        """Return metrics of the runs of a pipeline that ended since then or are open. An open run counts with its
        finished steps. Durations exclude reviews and `exclude_steps`; an open run that has only these left is timed."""
        return await metrics.get_pipeline_metrics(self._database, pipeline, since, exclude_steps)
