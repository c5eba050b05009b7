"""`retoma serve`: run the HTTP server until stopped."""

from __future__ import annotations

import asyncio
import os
import socket
import sys
from pathlib import Path
from typing import Annotated

import typer

from retoma.app import App
from retoma.cli import application, process_exit, served_applications
from retoma.cli.command_setup import open_client, read_settings
from retoma.cli.http_server import HttpServer, bind_socket, get_address
from retoma.cli.http_server import run_server as listening_server
from retoma.cli.messages import gettext
from retoma.cli.options import AppLocation
from retoma.cli.worker import run_process
from retoma.client import Client
from retoma.logs import get_logger
from retoma.server import make_server
from retoma.settings import Settings
from retoma.store import people

log = get_logger(__name__)
SERVICE = "retoma-server"
OLD_PASSWORD_SETTING = "RETOMA_ADMIN_PASSWORD_HASH"  # noqa: S105  (the name of a setting)
NO_PUBLIC_URL = "is not set, but other machines can reach the server: links and callbacks point to 127.0.0.1"


def serve(
    app: AppLocation = None,
    host: Annotated[
        str | None,
        typer.Option("--host", help="Address to listen on; 0.0.0.0 means all interfaces (RETOMA_HOST)."),
    ] = None,
    port: Annotated[
        int | None,
        typer.Option(
            "--port", min=0, max=65535, help="Port to listen on; 0 selects a free port (RETOMA_PORT or PORT)."
        ),
    ] = None,
) -> None:
    """Serve the HTTP API and the dashboard until stopped.

    Requests need an API key: see `retoma keys create`. Jobs need workers: see `retoma worker`. SIGTERM or Ctrl-C stops
    the server after running requests. Without an application, the server cannot start runs or accept edited results.

    \b
    Examples:
      retoma serve film.py
      retoma serve film.py --host 0.0.0.0 --port 8080
    """
    for name, value in (("RETOMA_HOST", host), ("RETOMA_PORT", port)):
        if value is not None:
            os.environ[name] = str(value)
    settings = read_settings()
    if lacks_public_url(settings):
        log.warning(
            "public_url_missing",
            message=f"RETOMA_PUBLIC_URL {NO_PUBLIC_URL}; set it, for example to https://retoma.example.com",
            host=settings.host,
        )
    with bind_socket(settings, settings.host) as listening:
        export_address(listening)
        location = app or settings.app
        if not location:
            run_process(_serve(None, settings, listening), SERVICE)
            return
        loaded = application.load(location, settings)
        with served_applications.record(settings.home, location, loaded):
            run_process(_serve(loaded, settings, listening), SERVICE)


def lacks_public_url(settings: Settings) -> bool:
    """Return whether other machines can reach the server but RETOMA_PUBLIC_URL is not set."""
    is_reachable = settings.host not in ("localhost", "127.0.0.1", "::1") or bool(settings.trusted_proxies)
    return settings.public_url is None and is_reachable


def export_address(sock: socket.socket) -> None:
    """Export the server's address to the settings of the application and of subprocesses."""
    host, port = sock.getsockname()[:2]
    os.environ |= {"RETOMA_HOST": host, "RETOMA_PORT": str(port)}


async def _serve(app: App | None, settings: Settings, sock: socket.socket) -> None:
    async with open_client(settings, app) as client:
        await _suggest_key(client)
        await _suggest_administrator(client)
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
    stopping = asyncio.Event()

    def stop(_: int) -> None:
        log.info("server_stopping", message="stopping; requests in progress may finish")
        server.stop()
        stopping.set()

    process_exit.on_stop_signal(stop)
    await stopping.wait()


async def _suggest_administrator(client: Client) -> None:
    """Explain how to log in: earlier releases had a password of the server, which is no longer read."""
    if OLD_PASSWORD_SETTING in os.environ or OLD_PASSWORD_SETTING in _read_dotenv():
        log.warning(
            "setting_removed",
            message=f"{OLD_PASSWORD_SETTING} is no longer used, because people have accounts: remove it, and create "
            "the first administrator with `retoma people create`",
        )
    if not await people.has_administrator(client.database):
        lines = [
            gettext("Nobody can log in to the pages yet. Create the first administrator in another terminal:"),
            "  retoma people create NAME EMAIL --role administrator",
        ]
        print("\n".join(lines), file=sys.stderr)


def _read_dotenv() -> str:
    try:
        return Path(".env").read_text(encoding="utf-8")
    except (OSError, ValueError):
        return ""


async def _suggest_key(client: Client) -> None:
    if not await client.api_keys.list():
        lines = [
            gettext("There is no API key yet, so nobody can call this server. Create one in another terminal:"),
            "  retoma keys create NAME --scope runs:read --scope runs:write",
        ]
        print("\n".join(lines), file=sys.stderr)
