"""The live-event benchmark runs with few watchers."""

from __future__ import annotations

from bench import live
from bench.server import Server
from bench.testbed import Rig
from retoma.store.database import Database


async def test_live_streams_are_measured(database: Database) -> None:
    server = Server(database.url)
    try:
        digits = await live.measure(Rig(server, scale=0.002, timeout=60))
    finally:
        await server.close()
    assert digits.watchers == 20
    assert len(digits.delays) == live.STARTS
