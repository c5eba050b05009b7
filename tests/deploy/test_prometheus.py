"""The files for Prometheus, checked by its own tool and against the metrics that a server exposes."""

from __future__ import annotations

import shutil
import subprocess
from pathlib import Path
from typing import Any

import pytest
import yaml  # type: ignore[import-untyped]

from retoma.store.database import Database
from tests.deploy.metric_names import used_in
from tests.deploy.scrape import fetch_metrics, names, open_busy_server
from tests.system_packages import require

FOLDER = Path(__file__).resolve().parents[2] / "deploy" / "prometheus"


def promtool(*arguments: str, values: str | None = None) -> None:
    require(shutil.which("promtool") is not None, "promtool (Debian: apt-get install prometheus)")
    ended = subprocess.run(
        ["promtool", *arguments], cwd=FOLDER, input=values, capture_output=True, text=True, check=False
    )
    assert ended.returncode == 0, ended.stdout + ended.stderr


def rules() -> list[dict[str, Any]]:
    groups = yaml.safe_load((FOLDER / "rules.yml").read_text())["groups"]
    return [rule for group in groups for rule in group["rules"]]


def test_the_rules_are_valid() -> None:
    promtool("check", "rules", "rules.yml")


def test_the_rules_fire_when_they_should_and_not_before() -> None:
    promtool("test", "rules", "tests.yml")


def test_the_configuration_is_valid() -> None:
    promtool("check", "config", "--syntax-only", "prometheus.yml")


def test_every_alert_is_tested_to_fire() -> None:
    tests = yaml.safe_load((FOLDER / "tests.yml").read_text())["tests"]
    fired = {case["alertname"] for test in tests for case in test["alert_rule_test"] if case["exp_alerts"]}
    assert fired == {rule["alert"] for rule in rules()}


async def test_a_scrape_is_valid_for_prometheus(database: Database) -> None:
    async with open_busy_server(database) as api:
        promtool("check", "metrics", values=await fetch_metrics(api))


async def test_the_rules_use_only_existing_metrics(database: Database) -> None:
    async with open_busy_server(database) as api:
        exposed = names(await fetch_metrics(api)) | {"up"}
    used = {name for rule in rules() for name in used_in(rule["expr"])}
    assert used - exposed == set()


@pytest.mark.parametrize(
    ("alert", "condition"),
    [
        ("OrchestratorNoWorkerAvailable", "> 600"),
        ("OrchestratorQueueTooLong", "> 50"),
        ("RetomaDeadLetters", "> 10"),
    ],
)
def test_the_required_alerts_exist(alert: str, condition: str) -> None:
    (rule,) = (rule for rule in rules() if rule["alert"] == alert)
    assert condition in rule["expr"]
