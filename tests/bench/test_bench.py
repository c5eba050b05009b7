"""Every benchmark runs with tiny counts, and the page has a place for its results."""

from __future__ import annotations

import json
import sys
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import pytest

from bench import __main__ as suite
from bench.lines import LINES, MEASURES
from bench.report import Results, sections, write
from bench.server import Server
from bench.testbed import Rig
from bench.workloads import drain
from retoma.store.database import Database

PAGE = Path(__file__).parents[2] / "docs" / "performance.md"


@pytest.fixture(scope="module")
async def rig(database: Database) -> AsyncIterator[Rig]:
    server = Server(database.url)
    yield Rig(server, scale=0.0005, timeout=60)
    await server.close()


@pytest.mark.parametrize("measure", MEASURES)
async def test_a_measurement_returns_numbers(rig: Rig, measure: str) -> None:
    found = await MEASURES[measure].take(rig)
    assert found
    assert all(line in LINES or "@" in line for line in found)
    assert all(value >= 0 for values in found.values() for value in values)


async def test_work_that_did_not_succeed_at_once_is_not_measured(rig: Rig) -> None:
    async with rig.testbed() as stage:
        first = await stage.start(drain, 1)
        await stage.client.runs.cancel(first)
        with pytest.raises(RuntimeError, match="should have succeeded"):
            await stage.work(first, jobs=1)


@pytest.mark.parametrize(
    ("requests", "taken"),
    [([], ["rounds", "profile"]), (["chain"], ["rounds"]), (["--profile"], ["profile"])],
)
async def test_the_time_breakdown_is_part_of_the_total(
    rig: Rig, monkeypatch: pytest.MonkeyPatch, requests: list[str], taken: list[str]
) -> None:
    done = []

    @asynccontextmanager
    async def serving() -> AsyncIterator[Server]:
        yield Server(rig.server.url)

    async def rounds(*_: object) -> None:
        done.append("rounds")

    async def profile(_: Rig) -> dict[str, object]:
        done.append("profile")
        return {}

    for name, stand_in in {"open_server": serving, "_run_rounds": rounds, "profile": profile}.items():
        monkeypatch.setattr(suite, name, stand_in)
    monkeypatch.setattr(sys, "argv", ["bench", *requests])
    await suite._run_measurements(suite._parse_arguments())
    assert done == taken


def test_the_best_mode_of_a_peer_is_compared_with_ours() -> None:
    results = Results(ours={"chain": [900.0, 1_000.0, 1_100.0], "latency_p50": [2.0]})
    for mode, value in (("slow", 10.0), ("quick", 50.0)):
        results.add_peer("them", {"line": "chain", "mode": mode, "per_second": value})
        results.add_peer("them", {"line": "latency_p50", "mode": mode, "milliseconds": value})
    results.troubles["others"] = "not in the registry"
    text = sections(results)["peers"]
    assert "50.0 (20.0 x)" in text
    assert "10.0 (5.00 x)" in text
    assert "others: not in the registry" in text


def test_what_an_engine_could_not_do_is_one_line_for_all_rounds() -> None:
    results = Results(ours={"fan": [1_000.0]})
    results.add_peer("dbos", {"line": "fan", "mode": "steps", "per_second": 10.0})
    for number in (1, 2):
        results.troubles[f"dbos, round {number}"] = (
            "TimeoutError: not done after 120 s / fan: TimeoutError: not done after 120 s"
        )
        results.troubles[f"celery, round {number}"] = "RuntimeError: no Redis / latency: RuntimeError: no Redis"
    assert sections(results)["peers"].splitlines()[-2:] == [
        "- dbos, a mode of `fan`: not done after 120 s (rounds 1, 2).",
        "- celery: no Redis (rounds 1, 2).",
    ]


def test_a_missed_target_is_reported() -> None:
    text = sections(Results(ours={"chain": [29_000.0], "idle_cpu": [0.5]}))["figures"]
    assert "30,000, not reached" in text
    assert "1.00, reached" in text


def test_each_tenth_of_a_drain_is_the_median_of_all_rounds() -> None:
    results = Results()
    for tenth in (10.0, 30.0, 20.0):
        results.add({"chain@empty": [1.0], "drain@empty": [1.0], "curve@empty": [tenth, 2 * tenth]})
    assert "| empty tables | 20.0 | 40.0 |" in sections(results)["growth"]


def test_new_tables_are_inserted_into_the_page_and_the_rest_is_kept(tmp_path: Path) -> None:
    page = tmp_path / "performance.md"
    page.write_text(PAGE.read_text())
    write(page, dict.fromkeys(("machine", "figures", "peers", "growth", "profile"), "new"))
    assert page.read_text().count("\nnew\n") == 5
    assert page.read_text().splitlines()[0] == PAGE.read_text().splitlines()[0]


def test_stored_measurements_can_be_loaded() -> None:
    results = Results(ours={"chain": [1.0]}, machine={"cores": "2"})
    assert Results(**json.loads(json.dumps(results.as_json()))) == results
