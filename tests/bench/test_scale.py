"""The benchmark of scale runs with tiny counts."""

from __future__ import annotations

import os
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor

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
    with ThreadPoolExecutor(1) as earlier:  # as the one that starts the database
        earlier.submit(os.getpid).result()
        with scale.use_cores({min(every)}):
            started = [list_cores(), earlier.submit(list_cores).result()]
        assert started == [str(min(every))] * 2
        assert earlier.submit(os.sched_getaffinity, 0).result() == os.sched_getaffinity(0) == every


def list_cores() -> str:
    """Return the cores that a process may use that this thread starts."""
    asked = [sys.executable, "-c", "import os; print(*os.sched_getaffinity(0))"]
    return subprocess.run(asked, capture_output=True, text=True, check=True).stdout.strip()
