"""Read the settings and open the database for a command."""

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
            f"invalid setting: {describe_validation_error(error)}; see `retoma config show --help` for where settings "
            "come from"
        ) from None
    except TOMLDecodeError as error:
        raise typer.BadParameter(f"cannot parse retoma.toml: {error}") from None


def run_async(work: Coroutine[Any, Any, T]) -> T:
    with closing(work):  # a signal may stop the process before the coroutine starts
        return asyncio.run(work)


@asynccontextmanager
async def open_database(settings: Settings) -> AsyncIterator[Database]:
    """Open the database. Upgrade an embedded one; require the current schema of any other."""
    async with await Database.open(settings) as database:
        if settings.database_url is None:
            await database.upgrade()
        else:
            await database.require_current()
        yield database


@asynccontextmanager
async def open_client(settings: Settings, app: App | None = None) -> AsyncIterator[Client]:
    """Open a client. Without an application it can neither start runs nor validate results entered by people."""
    async with open_database(settings) as database:
        client = Client(app, database, Guard.from_settings(settings), heartbeat_timeout=settings.heartbeat_timeout)
        try:
            yield client
        finally:
            await client.close()
