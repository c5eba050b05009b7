"""The measure of hostile requests runs, with one of each."""

from __future__ import annotations

from bench import hostile_requests
from bench.server import Server
from bench.testbed import Rig
from retoma.store.database import Database


async def test_the_time_that_unauthenticated_requests_occupy_the_loop_is_measured(database: Database) -> None:
    server = Server(database.url)
    try:
        found = await hostile_requests.measure(Rig(server, scale=0.01, timeout=60), repeats=1)
    finally:
        await server.close()
    assert found.keys() == hostile_requests.REQUESTS.keys()
    assert all(milliseconds > 0 for milliseconds in found.values())
