"""What every command begins with: the settings, the application, and the database that they name."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Coroutine
from contextlib import asynccontextmanager, closing
from tomllib import TOMLDecodeError
from typing import Any, TypeVar

import typer
from pydantic import ValidationError

from retoma.app import App
from retoma.client import Client
from retoma.define.codec import describe_validation_error
from retoma.outgoing import Guard
from retoma.settings import Settings
from retoma.store.database import Database

T = TypeVar("T")


def read_settings() -> Settings:
    try:
        return Settings()
    except ValidationError as error:
        raise typer.BadParameter(
            f"a setting is wrong: {describe_validation_error(error)}; `retoma config show --help` says where they "
            "come from"
        ) from None
    except TOMLDecodeError as error:
        raise typer.BadParameter(f"retoma.toml cannot be read: {error}") from None


def run_async(work: Coroutine[Any, Any, T]) -> T:
    with closing(work):  # it may be told to stop before it begins
        return asyncio.run(work)


@asynccontextmanager
async def open_database(settings: Settings) -> AsyncIterator[Database]:
    """The database with a schema of this release. The embedded one is brought to it; another must be there already."""
    async with await Database.open(settings) as database:
        if settings.database_url is None:
            await database.upgrade()
        else:
            await database.require_current()
        yield database


@asynccontextmanager
async def open_client(settings: Settings, app: App | None = None) -> AsyncIterator[Client]:
    """Open a client. Without an application it can neither start runs nor take results that people enter."""
    async with open_database(settings) as database:
        client = Client(app, database, Guard.from_settings(settings), heartbeat_timeout=settings.heartbeat_timeout)
        try:
            yield client
        finally:
            await client.close()
