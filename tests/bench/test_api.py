"""The measure of the HTTP API runs, with tiny counts."""

from __future__ import annotations

from bench import api
from bench.server import Server
from bench.testbed import Rig
from retoma.store.database import Database


async def test_starts_over_http_are_measured(database: Database) -> None:
    server = Server(database.url)
    try:
        digits = await api.measure(Rig(server, scale=0.01, timeout=60), repeats=1)
    finally:
        await server.close()
    assert len(digits["starts"]) == 10
    assert all(value > 0 for values in digits.values() for value in values)
