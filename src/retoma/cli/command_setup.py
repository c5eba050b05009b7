"""Read the settings and open the database for a command."""

from __future__ import annotations

import asyncio
import inspect
from collections.abc import AsyncIterator, Callable, Coroutine
from contextlib import asynccontextmanager, closing
from functools import wraps
from tomllib import TOMLDecodeError
from typing import Any, Concatenate, ParamSpec, TypeVar

import typer
from pydantic import ValidationError

from retoma.app import App
from retoma.client import Client
from retoma.define.codec import describe_validation_error
from retoma.encryption import Keyring
from retoma.outgoing import Guard
from retoma.privileges import get_user_name
from retoma.records import Actor, ActorKind
from retoma.settings import Settings
from retoma.store.database import Database

P = ParamSpec("P")
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


def async_command(command: Callable[P, Coroutine[Any, Any, T]]) -> Callable[P, T]:
    """Make a command of an asynchronous function."""

    @wraps(command)
    def run(*args: P.args, **options: P.kwargs) -> T:
        return run_async(command(*args, **options))

    return run


def run_with_client(work: Callable[[Client], Coroutine[Any, Any, T]], app: App | None = None) -> T:
    async def run() -> T:
        async with open_client(read_settings(), app) as client:
            return await work(client)

    return run_async(run())


def client_command(command: Callable[Concatenate[Client, P], Coroutine[Any, Any, T]]) -> Callable[P, T]:
    """Make a command of an asynchronous function whose first parameter is a client without an application."""

    @wraps(command)
    def run(*args: P.args, **options: P.kwargs) -> T:
        return run_with_client(lambda client: command(client, *args, **options))

    signature = inspect.signature(command, eval_str=True)
    _, *parameters = signature.parameters.values()
    run.__signature__ = signature.replace(parameters=parameters)  # type: ignore[attr-defined]
    return run


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
        client = Client(
            app,
            database,
            Guard.from_settings(settings),
            heartbeat_timeout=settings.heartbeat_timeout,
            retention=settings.retention,
            keyring=Keyring.from_settings(settings),
        )
        name = get_user_name()
        try:
            yield client.acting_as(Actor(ActorKind.COMMAND_LINE, name, name))
        finally:
            await client.close()
