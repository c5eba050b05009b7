"""The monitoring page matches the metrics that servers expose and the alerting rules."""

from __future__ import annotations

import re
from pathlib import Path

from prometheus_client.parser import text_string_to_metric_families

from retoma.store.database import Database
from tests.deploy.metric_names import OWN
from tests.deploy.scrape import fetch_metrics, open_busy_server
from tests.deploy.test_prometheus import rules

PAGE = Path(__file__).resolve().parents[2] / "docs" / "monitoring.md"
Row = tuple[str, frozenset[str], str, str]


async def test_the_page_lists_every_metric_with_its_labels_type_and_meaning(database: Database) -> None:
    async with open_busy_server(database) as api:
        text = await fetch_metrics(api)
    exposed = {row for row in _parse_metrics(text) if row[0].startswith(OWN)}
    assert set(_read_documented_metrics()) == exposed


def test_the_page_lists_every_alert() -> None:
    listed = re.findall(r"^\| `((?:Orchestrator|Retoma)\w+)` \|", PAGE.read_text(), re.MULTILINE)
    assert listed == [rule["alert"] for rule in rules()]


def _parse_metrics(text: str) -> set[Row]:
    return {
        (
            family.name + "_total" * (family.type == "counter"),
            frozenset(label for sample in family.samples for label in sample.labels) - {"le"},
            family.type,
            family.documentation,
        )
        for family in text_string_to_metric_families(text)
    }


def _read_documented_metrics() -> list[Row]:
    rows = re.findall(
        r"^\| `(\w+)(?:\{(.*?)\})?` \| (gauge|counter|histogram) \| (.*) \|$", PAGE.read_text(), re.MULTILINE
    )
    return [(name, frozenset(re.findall(r"\w+", labels)), kind, meaning) for name, labels, kind, meaning in rows]
