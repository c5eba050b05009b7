"""The monitoring page matches the metrics that servers expose and the alerting rules."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any, NamedTuple

import pytest
from prometheus_client.parser import text_string_to_metric_families

from retoma.server.pages.registry import PAGES
from retoma.store.database import Database
from tests.deploy.metric_names import OWN, used_in
from tests.deploy.scrape import fetch_metrics, open_busy_server
from tests.deploy.test_prometheus import rules

DOCS = Path(__file__).resolve().parents[2] / "docs"
PAGE = DOCS / "monitoring.md"
LOG_EVENTS = DOCS / "reference" / "log-events.md"
Row = tuple[str, frozenset[str], str, str]


async def test_the_page_lists_every_metric_with_its_labels_type_and_meaning(database: Database) -> None:
    async with open_busy_server(database) as api:
        text = await fetch_metrics(api)
    exposed = {row for row in _parse_metrics(text) if row[0].startswith(OWN)}
    assert set(_read_documented_metrics()) == exposed


def test_every_alert_has_its_row_in_the_order_of_the_rules() -> None:
    assert [row.alert for row in read_alerts()] == [rule["alert"] for rule in rules()]


def test_every_alert_says_what_it_means_what_to_look_at_and_what_to_do() -> None:
    assert [row.alert for row in read_alerts() if not (row.meaning and row.look and row.do)] == []


@pytest.mark.parametrize("rule", rules(), ids=lambda rule: str(rule["alert"]))
def test_the_row_of_an_alert_names_a_metric_of_its_rule(rule: dict[str, Any]) -> None:
    (row,) = (row for row in read_alerts() if row.alert == rule["alert"])
    assert used_in(rule["expr"]) & row.names


def test_the_rows_of_alerts_name_existing_pages_metrics_and_log_events() -> None:
    listed = {name for name, *_ in _read_documented_metrics()}
    logged = set(re.findall(r"^\| `(\w+)` \|", LOG_EVENTS.read_text(), re.MULTILINE))
    addresses = {page.path for page in PAGES} | {"/readyz"}
    named = {name for row in read_alerts() for name in row.names}
    assert named - listed - logged - addresses - {"up"} == set()


class AlertRow(NamedTuple):
    alert: str
    meaning: str
    look: str
    do: str

    @property
    def names(self) -> set[str]:
        """The pages, metrics and log events to look at."""
        words = re.findall(r"`([^`]+)`", self.look)
        return {word for word in words if not word.startswith("retoma ")}


def read_alerts() -> list[AlertRow]:
    _, _, section = PAGE.read_text().partition("\n## Alerts\n")
    rows = re.findall(r"^\| `(\w+)` \| (.*) \|$", section, re.MULTILINE)
    return [AlertRow(alert, *cells.split(" | ")) for alert, cells in rows]


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
