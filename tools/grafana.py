"""Write the Grafana dashboard, `deploy/grafana/retoma.json`.

    python tools/grafana.py

All servers return the same metrics, so queries take the `max` before they sum.
"""

import json
from pathlib import Path
from typing import Any

FILE = Path(__file__).resolve().parents[1] / "deploy" / "grafana" / "retoma.json"
WIDTH = 24
OPERATIONS = "img2vid|caption|addaudio"
SOURCE = {"type": "prometheus", "uid": "${datasource}"}
Panel = dict[str, Any]


def main() -> int:
    FILE.write_text(text(), encoding="utf-8")
    print(f"wrote {FILE}")
    return 0


def text() -> str:
    return json.dumps(dashboard(), indent=2, ensure_ascii=False) + "\n"


def dashboard() -> dict[str, Any]:
    return {
        "uid": "retoma",
        "title": "Retoma",
        "tags": ["retoma"],
        "schemaVersion": 39,
        "editable": True,
        "refresh": "15s",
        "time": {"from": "now-6h", "to": "now"},
        "templating": {"list": [_datasource(), _pipelines()]},
        "panels": place_panels(
            [
                (row("Runs"), WIDTH, 1),
                *((panel, 12, 8) for panel in runs()),
                (row("Reviews"), WIDTH, 1),
                *((panel, 8, 8) for panel in reviews()),
                (row("Queues, workers and pools"), WIDTH, 1),
                *((panel, 8, 8) for panel in queues()),
                (row("Steps"), WIDTH, 1),
                *((panel, 8, 8) for panel in job_types()),
                (row("Webhooks"), WIDTH, 1),
                *((panel, 8, 8) for panel in deliveries()),
                (row("Servers"), WIDTH, 1),
                *((panel, 12, 8) for panel in servers()),
                (row("GPU orchestrator"), WIDTH, 1),
                *((panel, 4, 4) for panel in orchestrator_stats()),
                *((panel, 8, 8) for panel in orchestrator_graphs()),
            ]
        ),
    }


def orchestrator_stats() -> list[Panel]:
    return [
        stat("Jobs Queued", [("", "max(orchestrator_jobs_queued)")]),
        stat("Jobs In Progress", [("", "max(orchestrator_jobs_inprogress)")]),
        stat("Jobs Completed", [("", count_ended('state="completed"'))]),
        stat("Jobs Failed", [("", count_ended('state=~"failed|completed_with_errors"'))]),
        stat(
            "Workers Available",
            [
                ("available", "max(orchestrator_workers_available)"),
                ("of", 'max(retoma_pool_capacity{pool="gpu"})'),
            ],
        ),
        stat("Avg Job Duration", [("", mean("orchestrator_job_duration_seconds"))], unit="s"),
        stat(
            "Webhook Success",
            [
                (
                    "",
                    "max(increase(orchestrator_webhook_success_total[$__range])) / "
                    "(max(increase(orchestrator_webhook_success_total[$__range]))"
                    " + max(increase(orchestrator_webhook_failure_total[$__range])))",
                )
            ],
            unit="percentunit",
        ),
    ]


def orchestrator_graphs() -> list[Panel]:
    return [
        graph(
            "Job Queue Size over Time",
            [("queued", "max(orchestrator_jobs_queued)"), ("in progress", "max(orchestrator_jobs_inprogress)")],
        ),
        heatmap(
            "Job Duration Distribution",
            "max by (le) (increase(orchestrator_job_duration_seconds_bucket[$__rate_interval]))",
        ),
        graph(
            "Worker Utilization",
            [("in use", 'max(retoma_pool_used{pool="gpu"}) / max(retoma_pool_capacity{pool="gpu"})')],
            unit="percentunit",
        ),
    ]


def runs() -> list[Panel]:
    return [
        graph(
            "Unfinished runs",
            [("{{state}}", 'sum by (state) (max by (pipeline, state) (retoma_runs{pipeline=~"$pipeline"}))')],
        ),
        graph(
            "Finished runs per minute",
            [
                (
                    "{{state}}",
                    "60 * sum by (state) (max by (pipeline, state) "
                    '(rate(retoma_runs_ended_total{pipeline=~"$pipeline"}[$__rate_interval])))',
                )
            ],
        ),
        graph("Wait until the first job starts", quantiles("retoma_run_wait_seconds_bucket"), unit="s"),
        graph("Run duration without reviews", quantiles("retoma_run_duration_seconds_bucket"), unit="s"),
        graph("Time in review", quantiles("retoma_run_review_seconds_bucket"), unit="s"),
        graph(
            "Runs not started",
            [("{{pipeline}}", 'max by (pipeline) (retoma_runs_not_started{pipeline=~"$pipeline"})')],
        ),
        graph(
            "Budgets: share that is spent",
            [
                (
                    "{{tenant}} {{pipeline}} {{period}}",
                    'max by (tenant, pipeline, period) (retoma_budget_spent_ratio{pipeline=~"$pipeline|"})',
                )
            ],
        ),
        graph(
            "Budgets: spent, in US$",
            [
                (
                    "{{tenant}} {{pipeline}} {{period}}",
                    'max by (tenant, pipeline, period) (retoma_budget_spent_dollars{pipeline=~"$pipeline|"})',
                )
            ],
        ),
        graph(
            "Jobs that wait for a budget",
            [("{{tenant}}", "sum by (tenant) (max by (tenant, pipeline, period) (retoma_budget_waiting_jobs))")],
        ),
        graph(
            "Removed by retention per hour",
            [
                ("runs", "3600 * max(rate(retoma_retention_removed_runs_total[$__rate_interval]))"),
                ("files", "3600 * max(rate(retoma_retention_removed_files_total[$__rate_interval]))"),
            ],
        ),
        graph(
            "Bytes of removed files per hour",
            [("bytes", "3600 * max(rate(retoma_retention_removed_file_bytes_total[$__rate_interval]))")],
            unit="bytes",
        ),
        graph(
            "Due times of schedules per minute",
            [
                (
                    "{{outcome}}",
                    "60 * sum by (outcome) (max by (pipeline, outcome) "
                    '(rate(retoma_schedule_starts_total{pipeline=~"$pipeline"}[$__rate_interval])))',
                )
            ],
        ),
        graph(
            "Lateness of schedules",
            [
                (
                    "{{pipeline}}",
                    'max by (pipeline) (rate(retoma_schedule_late_seconds_total{pipeline=~"$pipeline"}'
                    "[$__rate_interval])) / max by (pipeline) "
                    '(rate(retoma_schedule_starts_total{pipeline=~"$pipeline", outcome="started"}[$__rate_interval]))',
                ),
                ("not started", "max(retoma_oldest_due_schedule_seconds)"),
            ],
            unit="s",
        ),
        graph(
            "Age of the last backup and of the last retention pass",
            [
                ("backup", "max(retoma_last_backup_age_seconds)"),
                ("retention", "max(retoma_retention_pass_age_seconds)"),
            ],
            unit="s",
        ),
        graph(
            "Orphaned effects",
            [("{{pipeline}}", 'max by (pipeline) (retoma_orphaned_effects{pipeline=~"$pipeline"})')],
        ),
    ]


def reviews() -> list[Panel]:
    return [
        graph("Open reviews", by_step("retoma_open_reviews")),
        graph("Overdue reviews", by_step("retoma_overdue_reviews")),
        graph("Age of the oldest open review", by_step("retoma_oldest_open_review_seconds"), unit="s"),
        graph("Decisions in 24 hours", by_step("retoma_review_decisions")),
        graph(
            "Wait until the decision: median",
            [*by_step("retoma_review_wait_median_seconds"), ("target", "max(retoma_review_wait_target_seconds)")],
            unit="s",
        ),
        graph("Wait until the decision: p95", by_step("retoma_review_wait_p95_seconds"), unit="s"),
        graph(
            "First-pass approval",
            [*by_step("retoma_review_first_pass_ratio"), ("target", "max(retoma_review_first_pass_target_ratio)")],
            unit="percentunit",
        ),
        graph("Decisions per hour", [("{{reviewer}}", "max by (reviewer) (retoma_review_decisions_per_hour)")]),
        graph("Load", [("{{reviewer}}", "max by (reviewer) (retoma_review_load)")]),
        graph(
            "Notifications",
            [("pending", "max(retoma_pending_notifications)"), ("dead", "max(retoma_dead_notifications)")],
        ),
        graph("Age of the oldest due notification", [("", "max(retoma_oldest_due_notification_seconds)")], unit="s"),
    ]


def queues() -> list[Panel]:
    return [
        graph("Jobs by queue and state", [("{{queue}} {{state}}", "max by (queue, state) (retoma_jobs) > 0")]),
        graph("Age of the next ready job", [("{{queue}}", "max by (queue) (retoma_oldest_ready_seconds)")], unit="s"),
        graph(
            "Workers",
            [("all", "max(retoma_workers)"), ("{{queue}}", "max by (queue) (retoma_queue_workers)")],
        ),
        graph(
            "Background loop restarts",
            [("{{loop}}", "sum by (loop) (increase(retoma_loop_restarts_total[$__range]))")],
        ),
        graph("Workers by pipeline", [("{{pipeline}}", "max by (pipeline) (retoma_pipeline_workers)")]),
        graph(
            "Running jobs and concurrency",
            [
                ("{{queue}} running", 'max by (queue) (retoma_jobs{state="running"})'),
                ("{{queue}} concurrency", "max by (queue) (retoma_queue_concurrency)"),
            ],
        ),
        graph(
            "Pool slots",
            [
                ("{{pool}} used", "max by (pool) (retoma_pool_used)"),
                ("{{pool}} capacity", "max by (pool) (retoma_pool_capacity)"),
                ("{{pool}} paused", "max by (pool) (retoma_pool_paused) > 0"),
            ],
        ),
        graph("Jobs waiting for slots", [("{{pool}}", "max by (pool) (retoma_pool_waiting)")]),
        graph(
            "Longest wait for slots",
            [("{{pool}}", "max by (pool) (retoma_pool_oldest_waiting_seconds)")],
            unit="s",
        ),
        graph(
            "Time since a job last acquired slots",
            [("{{pool}}", "max by (pool) (retoma_pool_newest_holder_seconds)")],
            unit="s",
        ),
    ]


def job_types() -> list[Panel]:
    return [
        graph("Jobs processed per minute", by_step("jobs_processed_per_minute")),
        graph("Oldest waiting job", by_step("oldest_queue_time_per_job_type"), unit="s"),
        *(
            graph(f"{title}: {statistic}", by_step(f"{statistic}_{field}_per_job_type"), unit="s")
            for title, field in (("Queue time", "queue_time"), ("Processing time", "processing_time"))
            for statistic in ("avg", "p50", "p95")
        ),
    ]


def deliveries() -> list[Panel]:
    return [
        graph("Webhook deliveries by state", [("{{state}}", "max by (state) (retoma_deliveries)")]),
        graph("Age of the oldest due delivery", [("", "max(retoma_oldest_due_delivery_seconds)")], unit="s"),
        graph(
            "Finished deliveries per minute",
            [
                (
                    "{{state}}",
                    "60 * sum by (state) (max by (pipeline, state) "
                    "(rate(retoma_deliveries_ended_total[$__rate_interval])))",
                )
            ],
        ),
        stat("Dead letters", [("", "max(retoma_dead_deliveries)")]),
        stat("Disabled endpoints", [("", "max(retoma_disabled_endpoints)")]),
        stat("Held since a restore", [("", "max(retoma_held_deliveries)")]),
    ]


def servers() -> list[Panel]:
    return [
        graph("Server memory", [("{{instance}}", "process_resident_memory_bytes")], unit="bytes"),
        graph(
            "Server CPU usage",
            [("{{instance}}", "rate(process_cpu_seconds_total[$__rate_interval])")],
            unit="percentunit",
        ),
        graph(
            "Requests per second",
            [
                ("{{instance}}", "rate(retoma_http_requests_total[$__rate_interval])"),
                ("{{instance}}, last minute", "retoma_http_requests_per_second"),
            ],
        ),
        graph("Application metrics collected", [("", "min(retoma_application_metrics_up)")]),
        graph("Age of the oldest transaction", [("", "max(retoma_oldest_transaction_seconds)")], unit="s"),
    ]


def count_ended(selector: str) -> str:
    """Return a query for the number of the orchestrator's finished jobs, without other pipelines."""
    return (
        f'sum(max by (pipeline, state) (retoma_runs_ended_total{{{selector}, pipeline=~"{OPERATIONS}"}})) or vector(0)'
    )


def by_step(metric: str) -> list[tuple[str, str]]:
    return [("{{pipeline}} {{step}}", f'max by (pipeline, step) ({metric}{{pipeline=~"$pipeline"}})')]


def mean(histogram: str) -> str:
    return f"max(increase({histogram}_sum[$__range])) / max(increase({histogram}_count[$__range]))"


def quantiles(buckets: str) -> list[tuple[str, str]]:
    rate = f'sum by (le) (max by (pipeline, le) (rate({buckets}{{pipeline=~"$pipeline"}}[$__rate_interval])))'
    return [(f"{share:.0%}", f"histogram_quantile({share}, {rate})") for share in (0.5, 0.95)]


def stat(title: str, queries: list[tuple[str, str]], unit: str = "none") -> Panel:
    return _panel("stat", title, queries, unit) | {
        "options": {"reduceOptions": {"calcs": ["lastNotNull"]}, "textMode": "auto"}
    }


def graph(title: str, queries: list[tuple[str, str]], unit: str = "none") -> Panel:
    return _panel("timeseries", title, queries, unit) | {
        "options": {"legend": {"displayMode": "list", "placement": "bottom"}}
    }


def heatmap(title: str, query: str) -> Panel:
    panel = _panel("heatmap", title, [("{{le}}", query)], "s")
    panel["targets"][0]["format"] = "heatmap"
    return panel | {"options": {"calculate": False, "yAxis": {"unit": "s"}}}


def row(title: str) -> Panel:
    return {"type": "row", "title": title, "collapsed": False, "panels": []}


def place_panels(panels: list[tuple[Panel, int, int]]) -> list[Panel]:
    """Place the panels, each with its width and height, from left to right and from top to bottom."""
    placed: list[Panel] = []
    x = y = tallest = 0
    for number, (panel, width, height) in enumerate(panels, start=1):
        if x + width > WIDTH or panel["type"] == "row":
            x, y, tallest = 0, y + tallest, 0
        placed.append({"id": number, "gridPos": {"x": x, "y": y, "w": width, "h": height}, **panel})
        x, tallest = x + width, max(tallest, height)
    return placed


def _panel(kind: str, title: str, queries: list[tuple[str, str]], unit: str) -> Panel:
    return {
        "type": kind,
        "title": title,
        "datasource": SOURCE,
        "fieldConfig": {"defaults": {"unit": unit}, "overrides": []},
        "targets": [
            {"refId": chr(ord("A") + index), "datasource": SOURCE, "expr": query, "legendFormat": legend or title}
            for index, (legend, query) in enumerate(queries)
        ],
    }


def _datasource() -> dict[str, Any]:
    return {"name": "datasource", "label": "Prometheus", "type": "datasource", "query": "prometheus"}


def _pipelines() -> dict[str, Any]:
    return {
        "name": "pipeline",
        "type": "query",
        "datasource": SOURCE,
        "query": {"query": "label_values(retoma_runs, pipeline)", "refId": "pipelines"},
        "refresh": 2,
        "multi": True,
        "includeAll": True,
        "allValue": ".*",
        "current": {"text": "All", "value": "$__all"},
    }


if __name__ == "__main__":
    raise SystemExit(main())
