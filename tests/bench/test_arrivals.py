"""The recording of arrivals runs, with few stories, and its file is the one that the simulation replays."""

from __future__ import annotations

import csv
from pathlib import Path

import pytest

from bench import arrivals
from bench.server import Server
from retoma.store.database import Database
from tests.engine.test_autoscale import ARRIVALS


async def test_the_arrivals_of_stories_are_recorded(
    database: Database, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(arrivals, "SCENES", 2)
    server = Server(database.url)
    try:
        recorded = await arrivals.record(server, scale=0.002)
    finally:
        await server.close()
    assert {arrival.queue for arrival in recorded} == set(arrivals.QUEUES)
    assert sum(arrival.queue == "generate_image" for arrival in recorded) % 2 == 0
    assert min(arrival.took for arrival in recorded) > 0
    arrivals.write_arrivals(recorded, file := tmp_path / "arrivals.csv")
    assert read_header(file) == read_header(ARRIVALS)


def read_header(file: Path) -> list[str]:
    return next(csv.reader(line for line in file.read_text().splitlines() if not line.startswith("#")))
