"""The measure of the classifier runs, with few documents."""

from __future__ import annotations

from bench import classifier
from bench.server import Server
from bench.testbed import Rig
from retoma.store.database import Database


async def test_classification_is_measured(database: Database) -> None:
    server = Server(database.url)
    try:
        digits = await classifier.measure(Rig(server, scale=0.005, timeout=60), concurrency=2)
    finally:
        await server.close()
    assert digits.documents == 10
    assert min(digits.saving, digits.working, digits.processor) > 0
