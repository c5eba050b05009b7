"""The measure of the classifier runs, with few documents."""

from __future__ import annotations

from bench import classifier
from bench.server import Server
from bench.testbed import Rig
from retoma.store.database import Database


async def test_classifying_is_measured(database: Database) -> None:
    server = Server(database.url)
    try:
        figures = await classifier.measure(Rig(server, scale=0.005, timeout=60), concurrency=2)
    finally:
        await server.close()
    assert figures.documents == 10
    assert min(figures.saving, figures.working, figures.processor) > 0
