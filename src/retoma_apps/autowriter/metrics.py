"""Throughput, failure rate, retry rate and mean cost of articles, for the last day and the last week."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime, timedelta

from prometheus_client.core import GaugeMetricFamily, Metric

from retoma import Client
from retoma_apps.autowriter.pipeline import article

PERIODS = {"24h": timedelta(hours=24), "7d": timedelta(days=7)}


@dataclass(frozen=True)
class ArticleMetrics:
    """Of the articles that ended in a period. Rates are None without any; `mean_cost` is in millionths of a dollar.

    The retry rate is the share of steps that needed more than one attempt. The mean cost is what all articles of the
    period have cost, divided by the number of articles that ended in it.
    """

    period: str
    ended: int
    jobs_per_hour: float
    failure_rate: float | None
    retry_rate: float | None
    mean_cost: float | None


async def measure_articles(client: Client, period: str) -> ArticleMetrics:
    length = PERIODS[period]
    since = await client.now() - length
    runs = await client.metrics.get_pipeline(article.name, since)
    spent = await _sum_costs(client, since) if runs.ended else 0
    return ArticleMetrics(
        period=period,
        ended=runs.ended,
        jobs_per_hour=runs.ended / (length.total_seconds() / 3600),
        failure_rate=runs.failed / runs.ended if runs.ended else None,
        retry_rate=runs.retried / runs.steps if runs.steps else None,
        mean_cost=spent / runs.ended if runs.ended else None,
    )


async def collect_metrics(client: Client) -> list[Metric]:
    """Return the metrics of both periods for `/metrics`. A rate without articles is left out."""
    families = {
        "jobs_per_hour": GaugeMetricFamily(
            "autowriter_jobs_per_hour", "Articles that ended per hour", labels=["period"]
        ),
        "failure_rate": GaugeMetricFamily(
            "autowriter_failure_rate", "Share of ended articles that failed", labels=["period"]
        ),
        "retry_rate": GaugeMetricFamily(
            "autowriter_retry_rate", "Share of steps that needed more than one attempt", labels=["period"]
        ),
        "mean_cost": GaugeMetricFamily(
            "autowriter_mean_cost_micros", "Mean cost of an article in millionths of a US dollar", labels=["period"]
        ),
    }
    for period in PERIODS:
        measured = await measure_articles(client, period)
        for name, family in families.items():
            if (value := getattr(measured, name)) is not None:
                family.add_metric([period], value)
    return list(families.values())


async def _sum_costs(client: Client, since: datetime) -> int:
    """Return what the steps of articles have cost since then. No other pipeline has steps of these names."""
    totals = await client.costs.get_totals(by=("step",), since=since)
    return sum(each.micros for each in totals if each.step in article.steps)
