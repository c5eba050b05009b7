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

from retoma.cli.connection_limits import RESERVED_DESCRIPTORS, ConnectionLimits, LimitedProtocol, raise_descriptor_limit
from retoma.cli.settings_check import WorkerCheck
from retoma.engine.background_loops import run_in_background, run_with_restarts
from retoma.errors import DatabaseUnavailable
from retoma.settings import Settings
from retoma.store import servers
from retoma.store.database import Database
from retoma.worker.maintenance import Maintenance

SHUTDOWN_SECONDS = 10
_BACKLOG = 2048


class HttpServer(uvicorn.Server):
    """Whoever made it hears the signals and says when to end."""

    @contextmanager
    def capture_signals(self) -> Iterator[None]:
        yield

    def stop(self) -> None:
        """Take no more requests, and let those under way end. Asked again, do not wait for them."""
        self.force_exit = self.should_exit
        self.should_exit = True


def bind_socket(settings: Settings, host: str, *, any_port: bool = False) -> socket.socket:
    """A socket on the port of the settings. With `fall_back` on any if that is taken and nobody asked for it."""
    try:
        return _bind(host, settings.port)
    except OSError as error:
        if error.errno == errno.EADDRINUSE and any_port and "port" not in settings.model_fields_set:
            return _bind(host, 0)
        raise typer.BadParameter(
            f"cannot listen on {host}, port {settings.port}: {error.strerror or error}; choose another with RETOMA_PORT"
        ) from error


def get_address(sock: socket.socket) -> str:
    host, port = sock.getsockname()[:2]
    return f"http://[{host}]:{port}" if ":" in host else f"http://{host}:{port}"


@asynccontextmanager
async def run_server(
    server: FastAPI, sock: socket.socket, settings: Settings, hosts: Sequence[str] | None = None
) -> AsyncIterator[HttpServer]:
    """It answers when this begins; when this ends, requests under way have been let end.

    The upkeep runs beside it, the watchdog included: a server sees a run that is stuck also when no worker is left.
    Workers must allow `hosts`; without them, those of the settings.
    """
    database = server.state.client.database
    async with run_maintenance(database, settings, hosts), _run_uvicorn(server, sock, settings) as listener:
        yield listener


@asynccontextmanager
async def _run_uvicorn(server: FastAPI, sock: socket.socket, settings: Settings) -> AsyncIterator[HttpServer]:
    listener = HttpServer(_uvicorn_config(server, settings))
    task = asyncio.create_task(listener.serve([sock]))
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
async def run_maintenance(
    database: Database, settings: Settings, hosts: Sequence[str] | None = None
) -> AsyncIterator[None]:
    """Do the upkeep while the block runs, let workers know of this server's `hosts`, and log those that lack one."""
    server = uuid4()
    allowed = settings.allow_hosts if hosts is None else hosts
    workers = WorkerCheck(database, allowed, settings.heartbeat_timeout)

    async def announce() -> None:
        await servers.send_heartbeat(database, server, allowed, settings.public_url)
        await workers.check()

    await announce()
    upkeep = Maintenance(
        database,
        heartbeat_timeout=settings.heartbeat_timeout,
        refresh=announce,
        worker=0,
        list_running=list,
        on_unwanted=lambda _: None,
        on_work=lambda: None,
        on_poll_due=lambda: None,
    )
    async with run_in_background(run_with_restarts("maintenance", upkeep.run)):
        yield
    with suppress(DatabaseUnavailable):  # then it stops counting after its heartbeat timeout
        await servers.deregister_server(database, server)


def _uvicorn_config(server: FastAPI, settings: Settings) -> uvicorn.Config:
    return uvicorn.Config(
        server,
        lifespan="off",
        http=partial(LimitedProtocol, limits=_connection_limits(settings)),  # type: ignore[arg-type]
        ws="none",
        log_config=None,
        log_level=logging.WARNING,
        access_log=False,
        server_header=False,
        proxy_headers=bool(settings.trusted_proxies),
        forwarded_allow_ips=settings.trusted_proxies or None,
        timeout_keep_alive=75,
        timeout_graceful_shutdown=SHUTDOWN_SECONDS,
    )


def _connection_limits(settings: Settings) -> ConnectionLimits:
    most = min(settings.max_connections, max(1, raise_descriptor_limit() - RESERVED_DESCRIPTORS))
    proxies = ProxyHeadersMiddleware(cast(Any, None), settings.trusted_proxies or []).trusted_hosts
    return ConnectionLimits(most, settings.max_connections_per_address, proxies.__contains__)


def _bind(host: str, port: int) -> socket.socket:
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
