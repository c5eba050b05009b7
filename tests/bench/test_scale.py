"""The benchmark of scale runs with tiny counts."""

from __future__ import annotations

import os
import subprocess
import sys

from bench import scale
from bench.server import Server
from bench.testbed import Rig
from retoma.store.database import Database


async def test_speed_and_the_inbox_are_measured(database: Database) -> None:
    server = Server(database.url)
    rig = Rig(server, scale=0.0005, timeout=60)
    try:
        speed = await scale.measure_speed(rig)
        inbox = await scale.measure_inbox(rig, 2, requests=2)
    finally:
        await server.close()
    assert set(speed) == {
        *("steps of a chain", "events of steps of a chain"),
        *("single jobs", "events of single jobs", "items of a fan-out"),
    }
    assert all(value > 0 for values in speed.values() for value in values)
    assert set(inbox) == set(scale.INBOX)


def test_everything_that_is_started_uses_only_the_chosen_cores() -> None:
    every = os.sched_getaffinity(0)
    asked = [sys.executable, "-c", "import os; print(*os.sched_getaffinity(0))"]
    with scale.use_cores({min(every)}):
        started = subprocess.run(asked, capture_output=True, text=True, check=True)
    assert started.stdout.split() == [str(min(every))]
    assert os.sched_getaffinity(0) == every
