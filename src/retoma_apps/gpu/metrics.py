"""The orchestrator's six metrics under their established names, computed from the database."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable

from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, HistogramMetricFamily, Metric

from retoma import Client
from retoma.metrics import MetricCounter, cumulate_buckets
from retoma_apps.gpu.states import STATUS_BY_RUN_STATE, Status

POOL = "gpu"
BUCKETS = (60, 120, 300, 600, 1200, 1800, 3600)  # all of them are also bounds of the engine


async def collect_metrics(client: Client) -> list[Metric]:
    metrics = await client.metrics.get_all()
    own = set(client.app.pipelines if client.app else ())
    by_status = Counter[Status]()
    for (pipeline, state), runs in metrics.open_runs.items():
        by_status[STATUS_BY_RUN_STATE[state]] += runs if pipeline in own else 0
    waiting = sum(runs for pipeline, runs in metrics.not_started.items() if pipeline in own)
    queued, in_progress = by_status["QUEUED"] + waiting, by_status["IN_PROGRESS"] - waiting
    free = sum(max(0, pool.capacity - pool.used) for pool in metrics.pools if pool.name == POOL)
    counters = [counter for counter in metrics.counters if counter.pipeline in own]
    durations = [counter for counter in counters if counter.what == "run_duration"]
    delivered = _count_deliveries(counters, "delivered")
    dead = _count_deliveries(counters, "dead")
    return [
        GaugeMetricFamily("orchestrator_jobs_queued", "Number of jobs in queue", queued),
        GaugeMetricFamily("orchestrator_jobs_inprogress", "Number of jobs in progress", in_progress),
        GaugeMetricFamily("orchestrator_workers_available", "Number of available GPU workers", free),
        HistogramMetricFamily(
            "orchestrator_job_duration_seconds",
            "Job execution time",
            buckets=cumulate_buckets(durations, BUCKETS),
            sum_value=sum(counter.seconds for counter in durations),
        ),
        CounterMetricFamily("orchestrator_webhook_success_total", "Number of successful webhook deliveries", delivered),
        CounterMetricFamily("orchestrator_webhook_failure_total", "Number of failed webhook deliveries", dead),
    ]


def _count_deliveries(counters: Iterable[MetricCounter], outcome: str) -> int:
    return sum(counter.count for counter in counters if (counter.what, counter.outcome) == ("delivery", outcome))
