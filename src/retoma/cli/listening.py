"""A server that listens, for as long as it is wanted."""

from __future__ import annotations

import asyncio
import errno
import logging
import socket
from collections.abc import AsyncIterator, Iterator, Sequence
from contextlib import asynccontextmanager, contextmanager, suppress
from functools import partial
from typing import Any, cast
from uuid import uuid4

import typer
import uvicorn
from fastapi import FastAPI
from uvicorn.middleware.proxy_headers import ProxyHeadersMiddleware

from retoma.cli.agreement import WorkerCheck
from retoma.cli.connections import RESERVED_DESCRIPTORS, Connections, Protocol, raise_descriptor_limit
from retoma.engine.loops import beside, kept_going
from retoma.errors import DatabaseUnavailable
from retoma.settings import Settings
from retoma.store import servers
from retoma.store.database import Database
from retoma.worker.upkeep import Upkeep

SECONDS_TO_END = 10
_BACKLOG = 2048


class Listener(uvicorn.Server):
    """Whoever made it hears the signals and says when to end."""

    @contextmanager
    def capture_signals(self) -> Iterator[None]:
        yield

    def stop(self) -> None:
        """Take no more requests, and let those under way end. Asked again, do not wait for them."""
        self.force_exit = self.should_exit
        self.should_exit = True


def bound(settings: Settings, host: str, *, fall_back: bool = False) -> socket.socket:
    """A socket on the port of the settings. With `fall_back` on any if that is taken and nobody asked for it."""
    try:
        return _bound(host, settings.port)
    except OSError as error:
        if error.errno == errno.EADDRINUSE and fall_back and "port" not in settings.model_fields_set:
            return _bound(host, 0)
        raise typer.BadParameter(
            f"cannot listen on {host}, port {settings.port}: {error.strerror or error}; choose another with RETOMA_PORT"
        ) from error


def address(listening: socket.socket) -> str:
    host, port = listening.getsockname()[:2]
    return f"http://[{host}]:{port}" if ":" in host else f"http://{host}:{port}"


@asynccontextmanager
async def serving(
    server: FastAPI, listening: socket.socket, settings: Settings, hosts: Sequence[str] | None = None
) -> AsyncIterator[Listener]:
    """It answers when this begins; when this ends, requests under way have been let end.

    The upkeep runs beside it, the watchdog included: a server sees a run that is stuck also when no worker is left.
    Workers must allow `hosts`; without them, those of the settings.
    """
    database = server.state.client.database
    async with kept_up(database, settings, hosts), _answering(server, listening, settings) as listener:
        yield listener


@asynccontextmanager
async def _answering(server: FastAPI, listening: socket.socket, settings: Settings) -> AsyncIterator[Listener]:
    listener = Listener(_config(server, settings))
    task = asyncio.create_task(listener.serve([listening]))
    try:
        while not listener.started:
            if task.done():
                await task
            await asyncio.sleep(0.01)
        yield listener
    finally:
        listener.should_exit = True
        server.state.live.close()  # streams would go on for as long as they are watched
        await task


@asynccontextmanager
async def kept_up(database: Database, settings: Settings, hosts: Sequence[str] | None = None) -> AsyncIterator[None]:
    """Do the upkeep while the block runs, let workers know of this server's `hosts`, and log those that lack one."""
    server = uuid4()
    allowed = settings.allow_hosts if hosts is None else hosts
    workers = WorkerCheck(database, allowed, settings.silence)

    async def announce() -> None:
        await servers.announce(database, server, allowed, settings.public_url)
        await workers.check()

    await announce()
    upkeep = Upkeep(
        database,
        silence=settings.silence,
        refresh=announce,
        worker=0,
        at_work=list,
        on_unwanted=lambda _: None,
        on_work=lambda: None,
        on_look=lambda: None,
    )
    async with beside(kept_going("upkeep", upkeep.run)):
        yield
    with suppress(DatabaseUnavailable):  # then it stops counting after its heartbeat timeout
        await servers.end(database, server)


def _config(server: FastAPI, settings: Settings) -> uvicorn.Config:
    return uvicorn.Config(
        server,
        lifespan="off",
        http=partial(Protocol, limits=_limits(settings)),  # type: ignore[arg-type]
        ws="none",
        log_config=None,
        log_level=logging.WARNING,
        access_log=False,
        server_header=False,
        proxy_headers=bool(settings.trusted_proxies),
        forwarded_allow_ips=settings.trusted_proxies or None,
        timeout_keep_alive=75,
        timeout_graceful_shutdown=SECONDS_TO_END,
    )


def _limits(settings: Settings) -> Connections:
    most = min(settings.max_connections, max(1, raise_descriptor_limit() - RESERVED_DESCRIPTORS))
    proxies = ProxyHeadersMiddleware(cast(Any, None), settings.trusted_proxies or []).trusted_hosts
    return Connections(most, settings.max_connections_per_address, proxies.__contains__)


def _bound(host: str, port: int) -> socket.socket:
    family, kind, protocol, _, place = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE)[
        0
    ]
    made = socket.socket(family, kind, protocol)
    try:
        made.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        made.bind(place)
        made.listen(_BACKLOG)
    except OSError:
        made.close()
        raise
    return made
