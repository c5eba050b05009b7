"""Run the HTTP server and its maintenance loop."""

from __future__ import annotations

import asyncio
import errno
import logging
import socket
from collections.abc import AsyncIterator, Collection, Iterator, Sequence
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
from retoma.client.schedule_starts import run_schedules
from retoma.engine.background_loops import run_in_background, run_with_restarts
from retoma.engine.bulk_actions import advance_actions_forever
from retoma.engine.retention import remove_forever
from retoma.engine.run_traces import run_tracing
from retoma.errors import DatabaseUnavailable
from retoma.files import FileStore
from retoma.settings import Settings
from retoma.store import servers
from retoma.store.database import Database
from retoma.worker.maintenance import Maintenance

SHUTDOWN_SECONDS = 10
_BACKLOG = 2048


class HttpServer(uvicorn.Server):
    """A uvicorn server that leaves signal handling to its caller."""

    @contextmanager
    def capture_signals(self) -> Iterator[None]:
        yield

    def stop(self) -> None:
        """Accept no more requests and wait for running ones. A second call stops waiting."""
        self.force_exit = self.should_exit
        self.should_exit = True


def bind_socket(settings: Settings, host: str, *, any_port: bool = False) -> socket.socket:
    """Bind the configured port. With `any_port`, use a free port if the default one is taken."""
    try:
        return _bind(host, settings.port)
    except OSError as error:
        if error.errno == errno.EADDRINUSE and any_port and "port" not in settings.model_fields_set:
            return _bind(host, 0)
        raise typer.BadParameter(
            f"cannot listen on {host}, port {settings.port}: {error.strerror or error}; set another with RETOMA_PORT"
        ) from error


def get_address(sock: socket.socket) -> str:
    host, port = sock.getsockname()[:2]
    return f"http://[{host}]:{port}" if ":" in host else f"http://{host}:{port}"


@asynccontextmanager
async def run_server(
    server: FastAPI, sock: socket.socket, settings: Settings, hosts: Sequence[str] | None = None
) -> AsyncIterator[HttpServer]:
    """Serve while the block runs, then wait for running requests.

    Maintenance, including the watchdog, runs too: a server detects stuck runs even if no worker is left. So do the
    schedules of its application. Workers must allow `hosts`, by default those of the settings.
    """
    client = server.state.client
    files = () if client.app is None else client.app.file_stores
    async with (
        run_maintenance(client.database, settings, hosts, files),
        run_in_background(run_with_restarts("schedules", partial(run_schedules, client))),
        _run_uvicorn(server, sock, settings) as listener,
    ):
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
        server.state.live.close()  # open streams would block the shutdown
        await task


@asynccontextmanager
async def run_maintenance(
    database: Database, settings: Settings, hosts: Sequence[str] | None = None, files: Collection[FileStore] = ()
) -> AsyncIterator[None]:
    """Run maintenance while the block runs, announce `hosts` to workers, and log workers that do not allow them."""
    server = uuid4()
    allowed = settings.allow_hosts if hosts is None else hosts
    workers = WorkerCheck(database, allowed, settings.heartbeat_timeout)

    async def announce() -> None:
        await servers.send_heartbeat(database, server, allowed, settings.public_url)
        await workers.check()

    await announce()
    maintenance = Maintenance(
        database,
        heartbeat_timeout=settings.heartbeat_timeout,
        refresh=announce,
        worker=0,
        list_running=list,
        on_unwanted=lambda _: None,
        on_work=lambda: None,
        on_poll_due=lambda: None,
    )
    advance_actions = partial(advance_actions_forever, database, lambda: None)
    remove_runs = partial(remove_forever, database, settings.retention, files)
    async with (
        run_in_background(run_with_restarts("maintenance", maintenance.run)),
        run_in_background(run_with_restarts("bulk_actions", advance_actions)),
        run_in_background(run_with_restarts("retention", remove_runs)),
        run_tracing(database),
    ):
        yield
    with suppress(DatabaseUnavailable):  # the record expires after the heartbeat timeout
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
    limit = min(settings.max_connections, max(1, raise_descriptor_limit() - RESERVED_DESCRIPTORS))
    proxies = ProxyHeadersMiddleware(cast(Any, None), settings.trusted_proxies or []).trusted_hosts
    return ConnectionLimits(limit, settings.max_connections_per_address, proxies.__contains__)


def _bind(host: str, port: int) -> socket.socket:
    family, kind, protocol, _, address = socket.getaddrinfo(
        host, port, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE
    )[0]
    sock = socket.socket(family, kind, protocol)
    try:
        sock.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        sock.bind(address)
        sock.listen(_BACKLOG)
    except OSError:
        sock.close()
        raise
    return sock
