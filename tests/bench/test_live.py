"""The measure of live events runs, with few who watch."""

from __future__ import annotations

from bench import live
from bench.server import Server
from bench.testbed import Rig
from retoma.store.database import Database


async def test_watching_is_measured(database: Database) -> None:
    server = Server(database.url)
    try:
        figures = await live.measure(Rig(server, scale=0.002, timeout=60))
    finally:
        await server.close()
    assert figures.watchers == 20
    assert len(figures.delays) == live.STARTS
