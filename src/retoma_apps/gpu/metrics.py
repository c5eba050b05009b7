"""The six metrics that users of the orchestrator know, by their names, from what the database has."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable
from math import inf

from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, HistogramMetricFamily, Metric

from retoma import Client
from retoma_apps.gpu.states import STATUS_BY_RUN_STATE, Status

POOL = "gpu"
BUCKETS = (60, 120, 300, 600, 1200, 1800, 3600)


async def collect_metrics(client: Client) -> list[Metric]:
    figures = await client.metrics.get_all()
    own = set(client.app.pipelines if client.app else ())
    by_status = Counter[Status]()
    for (pipeline, state), runs in figures.open_runs.items():
        by_status[STATUS_BY_RUN_STATE[state]] += runs if pipeline in own else 0
    waiting = sum(runs for pipeline, runs in figures.not_started.items() if pipeline in own)
    queued, in_progress = by_status["QUEUED"] + waiting, by_status["IN_PROGRESS"] - waiting
    free = sum(max(0, pool.capacity - pool.used) for pool in figures.pools if pool.name == POOL)
    tallies = [tally for tally in figures.counters if tally.pipeline in own]
    worked = [(tally.bucket, tally.count) for tally in tallies if tally.what == "worked"]
    seconds = sum(tally.seconds for tally in tallies if tally.what == "worked")
    delivered = sum(tally.count for tally in tallies if (tally.what, tally.outcome) == ("delivery", "delivered"))
    dead = sum(tally.count for tally in tallies if (tally.what, tally.outcome) == ("delivery", "dead"))
    return [
        GaugeMetricFamily("orchestrator_jobs_queued", "Number of jobs in queue", queued),
        GaugeMetricFamily("orchestrator_jobs_inprogress", "Number of jobs in progress", in_progress),
        GaugeMetricFamily("orchestrator_workers_available", "Number of available RunPod workers", free),
        HistogramMetricFamily(
            "orchestrator_job_duration_seconds", "Job execution time", buckets=_buckets(worked), sum_value=seconds
        ),
        CounterMetricFamily("orchestrator_webhook_success_total", "Number of successful webhook deliveries", delivered),
        CounterMetricFamily("orchestrator_webhook_failure_total", "Number of failed webhook deliveries", dead),
    ]


def _buckets(durations: Iterable[tuple[float, int]]) -> list[tuple[str, float]]:
    """The engine's buckets have all of these bounds."""
    counted = list(durations)
    return [
        ("+Inf" if bound == inf else str(float(bound)), sum(times for under, times in counted if under <= bound))
        for bound in (*BUCKETS, inf)
    ]
