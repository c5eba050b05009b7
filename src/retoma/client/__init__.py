"""The client for programs with async: start runs, wait for them, query them and act on them.

async with connect(app) as client:
    results = await client.run(pipeline, {"topic": "tea"})
"""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

from retoma.app import App
from retoma.client.client import Client
from retoma.client.costs import ChargedBy
from retoma.define.pipeline import Input
from retoma.encryption import Keyring
from retoma.outgoing import Guard
from retoma.settings import Settings
from retoma.store.database import Database

__all__ = ["ChargedBy", "Client", "Input", "connect"]


@asynccontextmanager
async def connect(app: App | None, settings: Settings | None = None) -> AsyncIterator[Client]:
    """Open a client on the configured database, and upgrade its schema to this release."""
    settings = settings or Settings()
    async with await Database.open(settings) as database:
        await database.upgrade()
        client = Client(
            app,
            database,
            Guard.from_settings(settings),
            heartbeat_timeout=settings.heartbeat_timeout,
            retention=settings.retention,
            keyring=Keyring.from_settings(settings),
        )
        try:
            yield client
        finally:
            await client.close()
