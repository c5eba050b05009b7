"""The measurement of an import runs, with few articles."""

from __future__ import annotations

from bench import imports
from bench.server import Server
from bench.testbed import Rig
from retoma.store.database import Database


async def test_the_starts_of_an_import_are_measured(database: Database) -> None:
    server = Server(database.url)
    try:
        measured = await imports.measure(Rig(server, scale=0.002, timeout=60), concurrency=2)
    finally:
        await server.close()
    assert measured.articles == 10
    assert min(measured.seconds, measured.transactions) > 0
