"""The one in-process door to runs: start, wait, look, act.

    async with connect(app) as client:
        results = await client.run(pipeline, {"topic": "tea"})

Each file holds one part of the client, and what it needs of the others it inherits.
"""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

from retoma.app import App
from retoma.client.capacity import Capacity
from retoma.client.charges import ChargedBy, Charges
from retoma.client.deliveries import Deliveries
from retoma.client.external_work import ExternalWorkMethods
from retoma.client.keys import Keys
from retoma.client.links import Links
from retoma.client.profiles import Profiles
from retoma.client.reviews import Reviews
from retoma.client.run_actions import RunActions
from retoma.client.starts import Starts
from retoma.client.validation import Input
from retoma.outgoing import Guard
from retoma.settings import Settings
from retoma.store.database import Database

__all__ = ["ChargedBy", "Client", "Input", "connect"]


class Client(Starts, RunActions, Reviews, ExternalWorkMethods, Capacity, Charges, Profiles, Keys, Deliveries, Links):
    """Acts on runs of an application. Make it with `connect`; use it from one event loop.

    Without an application it can neither start runs nor take results that people enter, which it could not check.
    """


@asynccontextmanager
async def connect(app: App | None, settings: Settings | None = None) -> AsyncIterator[Client]:
    """A client on the database that the settings name, with its schema brought to this release."""
    settings = settings or Settings()
    async with await Database.open(settings) as database:
        await database.upgrade()
        client = Client(app, database, Guard.from_settings(settings), heartbeat_timeout=settings.heartbeat_timeout)
        try:
            yield client
        finally:
            await client.close()
