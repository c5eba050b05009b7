"""The measure of work alongside an open transaction runs, with a small batch."""

from __future__ import annotations

from contextlib import aclosing

from bench import long_transaction
from bench.server import Server
from bench.testbed import Rig
from retoma.store.database import Database


async def test_work_is_measured_with_and_without_an_open_transaction(database: Database) -> None:
    server = Server(database.url)
    try:
        async with aclosing(long_transaction.measure(Rig(server, scale=0.02, timeout=120), seconds=60)) as samples:
            sample = await anext(samples)
    finally:
        await server.close()
    assert sample.seconds_without > 0
    assert sample.ratio > 0
