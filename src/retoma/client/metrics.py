"""`client.metrics`: what Prometheus and the overview show."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime

from retoma.client.core import Namespace
from retoma.metrics import Metrics, MetricsSnapshot
from retoma.records import PipelineMetrics
from retoma.store import metrics


class MetricQueries(Namespace):
    async def get_all(self) -> Metrics:
        """What metrics show, of all tenants, as it was at most a second ago."""
        return await self._core.metrics_reader.read()

    async def get_snapshot(self) -> MetricsSnapshot:
        """The part of the figures that people look at, as it was at most a second ago; it costs less."""
        return await self._core.snapshot_reader.read()

    async def get_pipeline(
        self, pipeline: str, since: datetime, *, exclude_steps: Sequence[str] = ()
    ) -> PipelineMetrics:
        """Return how the runs of a pipeline went that ended since then or are open: an open run counts with the steps
        that it has finished. The time of the steps `without` is not counted, as that of reviews is not; an open run
        that has only these left is timed."""
        return await metrics.get_pipeline_metrics(self._database, pipeline, since, exclude_steps)
