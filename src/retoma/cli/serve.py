"""`retoma serve`: the HTTP API, until told to stop."""

from __future__ import annotations

import asyncio
import os
import signal
import socket
import sys
from typing import Annotated

import typer

from retoma import early_stop
from retoma.app import App
from retoma.cli import application, served_applications
from retoma.cli.command_setup import open_client, read_settings
from retoma.cli.http_server import HttpServer, bind_socket, get_address
from retoma.cli.http_server import run_server as listening_server
from retoma.cli.options import AppLocation
from retoma.cli.worker import run_process
from retoma.client import Client
from retoma.logs import get_logger
from retoma.server import make_server
from retoma.settings import Settings
from retoma.texts import text

log = get_logger(__name__)
NO_PUBLIC_URL = "is not set, but other machines can reach the server: links and callbacks point to 127.0.0.1"


def serve(
    app: AppLocation = None,
    host: Annotated[
        str | None,
        typer.Option("--host", help="Where to listen; 0.0.0.0 is every address of this machine (RETOMA_HOST)."),
    ] = None,
    port: Annotated[
        int | None, typer.Option("--port", min=0, max=65535, help="The port; 0 takes a free one (RETOMA_PORT or PORT).")
    ] = None,
) -> None:
    """Serve the HTTP API until told to stop. Every request needs an API key: retoma keys create.

    SIGTERM or Ctrl-C lets requests under way end. Runs need workers beside it: retoma worker. Without an application it
    cannot start runs, nor check results that people enter: it refuses those.

    \b
    retoma serve film.py
    retoma serve film.py --host 0.0.0.0 --port 8080
    """
    for name, given in (("RETOMA_HOST", host), ("RETOMA_PORT", port)):
        if given is not None:
            os.environ[name] = str(given)
    settings = read_settings()
    if lacks_public_url(settings):
        log.warning(
            "public_url_missing",
            message=f"RETOMA_PUBLIC_URL {NO_PUBLIC_URL}; set it, for example to https://retoma.example.com",
            host=settings.host,
        )
    with bind_socket(settings, settings.host) as listening:
        export_address(listening)
        place = app or settings.app
        if not place:
            run_process(_serve(None, settings, listening))
            return
        loaded = application.load(place, settings)
        with served_applications.record(settings.home, place, loaded):
            run_process(_serve(loaded, settings, listening))


def lacks_public_url(settings: Settings) -> bool:
    """Whether other machines reach the server and get links that lead to themselves."""
    is_reached = settings.host not in ("localhost", "127.0.0.1", "::1") or bool(settings.trusted_proxies)
    return settings.public_url is None and is_reached


def export_address(sock: socket.socket) -> None:
    """Let those that read the settings from now on know where the server is: the application, and a worker beside."""
    host, port = sock.getsockname()[:2]
    os.environ |= {"RETOMA_HOST": host, "RETOMA_PORT": str(port)}


async def _serve(app: App | None, settings: Settings, sock: socket.socket) -> None:
    async with open_client(settings, app) as client:
        await _suggest_key(client)
        async with listening_server(make_server(app, client, settings), sock, settings) as listener:
            log.info(
                "server_ready",
                message="the server accepts requests",
                address=get_address(sock),
                application=None if app is None else app.name,
            )
            await _wait_until_stopped(listener)
    log.info("server_stopped", message="the server has stopped")


async def _wait_until_stopped(server: HttpServer) -> None:
    loop = asyncio.get_running_loop()
    asked = asyncio.Event()

    def stop() -> None:
        log.info("server_stopping", message="stopping; requests in progress may finish")
        server.stop()
        asked.set()

    for number in (signal.SIGTERM, signal.SIGINT):
        loop.add_signal_handler(number, stop)
    if early_stop.was_stop_requested():
        stop()
    await asked.wait()


async def _suggest_key(client: Client) -> None:
    if not await client.api_keys.list():
        said = [text("no key yet"), "  retoma keys create NAME --scope runs:read --scope runs:write"]
        print("\n".join(said), file=sys.stderr)
