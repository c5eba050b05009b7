"""The dashboard: generated from Python, with every required panel, on metrics that exist."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from retoma.store.database import Database
from retoma_apps.providers.gpu import OPERATIONS
from tests.deploy.metric_names import OWN, used_in
from tests.deploy.scrape import fetch_metrics, names, open_busy_server
from tests.deploy.test_prometheus import promtool
from tools import grafana


def panels() -> dict[str, dict[str, Any]]:
    return {panel["title"]: panel for panel in grafana.dashboard()["panels"] if panel["type"] != "row"}


def queries() -> Iterator[str]:
    for panel in panels().values():
        yield from (target["expr"] for target in panel["targets"])


def test_the_dashboard_file_matches_its_generator() -> None:
    assert grafana.FILE.read_text(encoding="utf-8") == grafana.text(), "run: python tools/grafana.py"


async def test_every_query_uses_only_existing_metrics(database: Database) -> None:
    async with open_busy_server(database) as api:
        exposed = names(await fetch_metrics(api))
    used = {name for query in queries() for name in used_in(query)}
    assert used - exposed == set()


async def test_every_metric_of_the_engine_is_shown(database: Database) -> None:
    async with open_busy_server(database) as api:
        exposed = {name for name in names(await fetch_metrics(api)) if name.startswith(OWN)}
    used = {name for query in queries() for name in used_in(query)}
    parts = {
        f"{name.removesuffix('_bucket')}{part}" for name in used for part in ("_count", "_sum", "_created", "_bucket")
    }
    assert exposed - used - parts == set()


def test_every_query_is_valid(tmp_path: Path) -> None:
    """As a rule, with Grafana's variables filled in."""
    filled = [
        query.replace("$__rate_interval", "1m").replace("$__range", "6h").replace("$pipeline", ".*")
        for query in queries()
    ]
    assert not any("$" in query for query in filled)
    rules = [{"record": f"panel:{number}", "expr": query} for number, query in enumerate(filled)]
    file = tmp_path / "queries.yml"  # JSON is YAML too
    file.write_text(json.dumps({"groups": [{"name": "dashboard", "rules": rules}]}))
    promtool("check", "rules", str(file))


@pytest.mark.parametrize(
    ("title", "kind", "metric"),
    [
        ("Jobs Queued", "stat", "orchestrator_jobs_queued"),
        ("Jobs In Progress", "stat", "orchestrator_jobs_inprogress"),
        ("Jobs Completed", "stat", "retoma_runs_ended_total"),
        ("Jobs Failed", "stat", "retoma_runs_ended_total"),
        ("Workers Available", "stat", "orchestrator_workers_available"),
        ("Avg Job Duration", "stat", "orchestrator_job_duration_seconds_sum"),
        ("Webhook Success", "stat", "orchestrator_webhook_success_total"),
        ("Job Queue Size over Time", "timeseries", "orchestrator_jobs_queued"),
        ("Job Duration Distribution", "heatmap", "orchestrator_job_duration_seconds_bucket"),
        ("Worker Utilization", "timeseries", "retoma_pool_used"),
    ],
)
def test_the_required_panels_exist(title: str, kind: str, metric: str) -> None:
    panel = panels()[title]
    assert panel["type"] == kind
    assert metric in {name for target in panel["targets"] for name in used_in(target["expr"])}


@pytest.mark.parametrize("title", ["Jobs Completed", "Jobs Failed"])
def test_the_orchestrator_metrics_count_only_its_own_operations(title: str) -> None:
    (target,) = panels()[title]["targets"]
    assert f'pipeline=~"{"|".join(OPERATIONS)}"' in target["expr"]


def test_free_workers_are_shown_next_to_their_total() -> None:
    assert [target["expr"] for target in panels()["Workers Available"]["targets"]] == [
        "max(orchestrator_workers_available)",
        'max(retoma_pool_capacity{pool="gpu"})',
    ]


def test_panels_do_not_overlap() -> None:
    taken: set[tuple[int, int]] = set()
    for panel in json.loads(grafana.text())["panels"]:
        at = panel["gridPos"]
        cells = {(x, y) for x in range(at["x"], at["x"] + at["w"]) for y in range(at["y"], at["y"] + at["h"])}
        assert not cells & taken, panel["title"]
        assert at["x"] + at["w"] <= grafana.WIDTH
        taken |= cells
