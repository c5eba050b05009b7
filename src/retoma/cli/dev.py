"""`retoma dev`: everything on one machine, with one command."""

from __future__ import annotations

import asyncio
import os
import secrets
import shutil
import signal
import socket
import sys
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager, contextmanager, suppress
from importlib.metadata import version
from pathlib import Path
from typing import Annotated
from uuid import UUID

import typer

from retoma import early_stop, private_files
from retoma.app import App
from retoma.cli import application, reload, served_applications
from retoma.cli.command_setup import read_settings, run_async
from retoma.cli.config import SETTINGS_FROM_FLAGS
from retoma.cli.demo.announcements import announce_reviews, show_application_demo
from retoma.cli.demo.board import Board, open_board
from retoma.cli.demo.demo import Demo
from retoma.cli.dev_links import DevLinks
from retoma.cli.http_server import bind_socket, get_address, run_server
from retoma.cli.options import AppLocation
from retoma.cli.serve import export_address
from retoma.cli.worker_process import SupervisedWorker
from retoma.client import Client, connect
from retoma.outgoing import LOOPBACK as THIS_MACHINE
from retoma.privileges import hide_process
from retoma.server import make_server
from retoma.settings import Settings
from retoma.terminal import escape_text
from retoma.texts import text

DEMO = "retoma.demo:app"
DEMO_CONCURRENCY = 4
LOOPBACK = "127.0.0.1"
RELOAD_CODE = -1  # in place of an exit code


def dev(
    app: AppLocation = None,
    demo: Annotated[
        bool,
        typer.Option(
            "--demo",
            help="Start what the application has to show. Without APP: a run that survives the kill of its worker.",
        ),
    ] = False,
    once: Annotated[bool, typer.Option("--once", help="With --demo and without APP: exit when it is over.")] = False,
    concurrency: Annotated[
        int, typer.Option("-c", "--concurrency", min=1, max=10_000, help="How many jobs the worker runs at a time.")
    ] = 20,
    port: Annotated[
        int | None,
        typer.Option("--port", min=0, max=65535, help="The server's port; 0 takes a free one (RETOMA_PORT or PORT)."),
    ] = None,
) -> None:
    """Run everything on this machine: the database, the server, and a worker that is started again when it dies.

    When a source file of the application changes, both start again with it; runs under way continue.

    The database is embedded, in .retoma of this folder, unless RETOMA_DATABASE_URL names another.

    \b
    retoma dev --demo
    retoma dev film.py
    retoma dev retoma_apps.videos --demo
    """
    built_in = demo and not app
    if once and not built_in:
        raise typer.BadParameter("--once goes with --demo, without APP")
    # Remove both at once: the worker, and so every step, inherits this environment.
    before, token = os.environ.pop(reload.PORT_VARIABLE, None), os.environ.pop(reload.TOKEN_VARIABLE, None)
    token = token or secrets.token_urlsafe(12)
    if before or port is not None:
        os.environ["RETOMA_PORT"] = before or str(port)
    settings = read_settings()
    # A receiver under development is on this machine; the worker inherits it.
    os.environ["RETOMA_ALLOW_HOSTS"] = ",".join(dict.fromkeys((*settings.allow_hosts, *THIS_MACHINE)))
    settings = read_settings()
    if not demo and not (app or settings.app):
        raise typer.BadParameter(
            "say where the application is (retoma dev film.py), or see the demo: retoma dev --demo"
        )
    place = DEMO if built_in else app or settings.app or ""
    hide_process()
    with bind_socket(settings, LOOPBACK, any_port=True) as listening:
        export_address(listening)
        here = listening.getsockname()[1]  # before the server closes it
        loaded = application.load(place, settings)
        if demo and not built_in and loaded.demo is None:
            raise typer.BadParameter(f"{place} has nothing to show; leave --demo out, or give it App(demo=...)")
        worker = [place, "-c", str(DEMO_CONCURRENCY if built_in else concurrency)]
        with served_applications.record(settings.home, place, loaded):
            code = run_async(_dev(loaded, settings, listening, token, place, worker, demo=demo, once=once))
    if code == RELOAD_CODE:
        reload.restart(here, token)
    raise typer.Exit(code)


async def _dev(
    app: App,
    settings: Settings,
    sock: socket.socket,
    token: str,
    location: str,
    worker: list[str],
    *,
    demo: bool,
    once: bool,
) -> int:
    with open_board() as board:
        board.print_line(text("title", version=version("retoma"), app=app.name), style="bold")
        board.print_line(text("preparing"), style="dim")
        async with connect(app, settings) as client:
            kind = text("embedded" if settings.database_url is None else "own")
            board.print_line(text("database", kind=kind, address=_database_address(client, settings)))
            async with _serve(app, client, settings, sock, token, board) as links:
                if location == DEMO and demo:
                    return await _run_demo(client, settings, board, worker, once=once)
                async with announce_reviews(client, links, board):
                    if demo and app.demo:
                        async with show_application_demo(app.demo, client, links, board):
                            return await _supervise(app, location, board, worker, _set_log_level("warning"))
                    return await _supervise(app, location, board, worker, {})


@asynccontextmanager
async def _serve(
    app: App, client: Client, settings: Settings, sock: socket.socket, token: str, board: Board
) -> AsyncIterator[DevLinks]:
    """Serve the API and the pages to programs on this machine that know the token of this start."""
    port = sock.getsockname()[1]
    if settings.port not in (0, port):
        board.print_line(text("port taken", port=settings.port, other=port), style="yellow")
    links = DevLinks(get_address(sock), token)
    server = make_server(app, client, settings, dev_token=links.token)
    with _write_key_file(settings.home, links.token) as key:
        # Without its own: a worker that is started later, by itself, need not allow this machine.
        hosts = [host for host in settings.allow_hosts if host not in THIS_MACHINE]
        async with run_server(server, sock, settings, hosts):
            board.print_line(text("server", address=links.add_token(f"{links.address}/")))
            for page in app.pages:
                if page.nav:
                    board.print_line(text("page", address=links.add_token(f"{links.address}{page.path}")))
            board.print_line(text("api key", file=escape_text(str(key))))
            yield links


@contextmanager
def _write_key_file(home: Path, token: str) -> Iterator[Path]:
    """Keep the token where programs of this user find it, while the server runs."""
    file = private_files.create_home(home) / "dev-key"
    private_files.write_file(file, token)
    try:
        yield file
    finally:
        with suppress(OSError):
            if file.read_text() == token:  # another `retoma dev` of this home may have written its own
                file.unlink()


async def _supervise(app: App, location: str, board: Board, arguments: list[str], environment: dict[str, str]) -> int:
    async def told(pid: int, code: int) -> None:
        board.print_line(text("worker ended", pid=pid, code=code), style="yellow")

    kept = SupervisedWorker(arguments, environment, told)
    keeping = asyncio.create_task(kept.supervise())
    await kept.started.wait()
    board.print_line(text("worker", pid=kept.pid, queues=", ".join(app.queues)))
    board.print_line(text("webhooks"), style="dim")
    _suggest_commands(board, [*_suggest_start(app, location), "runs list", "doctor"])
    changing = asyncio.create_task(_stop_when_code_changes(location, kept, board))
    try:
        return await _wait_until_stopped(kept, keeping, board, changing)
    finally:
        changing.cancel()


async def _stop_when_code_changes(location: str, worker: SupervisedWorker, board: Board) -> None:
    def tell(broken: str) -> None:
        board.print_line(text("reload failed", error=escape_text(broken)), style="yellow")

    await reload.wait_for_code_change(location, tell)
    board.print_line(text("reloading"), style="yellow")
    worker.stop()


def _suggest_start(app: App, location: str) -> list[str]:
    """How its first pipeline is started, unless its users do so by routes of its own."""
    if app.routes:
        return []
    pipeline = next(iter(app.pipelines.values()))
    fields = pipeline.inputs.model_fields if pipeline.inputs else {}
    needed = "".join(f" -i {name}=..." for name, field in fields.items() if field.is_required())
    return [f"start {pipeline.name} {escape_text(location)}{needed} --wait"]


async def _run_demo(client: Client, settings: Settings, board: Board, arguments: list[str], *, once: bool) -> int:
    board.print_line("")
    board.print_line(text("demo"))
    board.print_line("")
    film = Demo(client, board, settings.heartbeat_timeout_seconds)
    kept = SupervisedWorker(arguments, _set_log_level("error"), lambda *_: film.on_worker_exit())
    keeping = asyncio.create_task(kept.supervise())
    shown = asyncio.create_task(film.run(kept))
    stopped = _stop_on_signals(kept, board, shown)
    try:
        proven = await shown
    except asyncio.CancelledError:
        proven = True
    board.clear()
    if once or not proven:
        kept.stop()
    elif not stopped.is_set():
        _suggest_commands(board, suggest_after_demo(film.run_id))
    await keeping
    if stopped.is_set():
        board.print_line(text("stopped"))
    return 0 if proven else 1


def _set_log_level(level: str) -> dict[str, str]:
    """So that what a demo says is not lost among log lines, unless they are asked for."""
    return {"RETOMA_LOG_LEVEL": os.environ.get("RETOMA_LOG_LEVEL", level)}


def suggest_after_demo(run: UUID | None) -> list[str]:
    """Commands that can be pasted."""
    return ["runs list", f"runs show {run}", f"start demo {DEMO} -i pace=0.2 --wait", "doctor"]


async def _wait_until_stopped(
    worker: SupervisedWorker, supervision: asyncio.Task[None], board: Board, reload_task: asyncio.Task[None]
) -> int:
    asked = _stop_on_signals(worker, board)
    await supervision
    if reload_task.done() and not asked.is_set():
        await reload_task
        return RELOAD_CODE
    board.print_line(text("stopped"))
    return 0


def _stop_on_signals(
    worker: SupervisedWorker, board: Board, demo_task: asyncio.Task[bool] | None = None
) -> asyncio.Event:
    """The first Ctrl-C lets the worker drain, the second makes it give back its jobs, the third kills it."""
    loop = asyncio.get_running_loop()
    asked = 0
    stopped = asyncio.Event()

    def stop() -> None:
        nonlocal asked
        asked += 1
        if asked == 1:
            stopped.set()
            if demo_task is not None:
                demo_task.cancel()
                board.clear()
            board.print_line(text("stopping"), style="yellow")
        if asked <= 2:
            worker.stop()
        else:
            worker.kill()

    for number in (signal.SIGINT, signal.SIGTERM):
        loop.add_signal_handler(number, stop)
    if early_stop.was_stop_requested():
        stop()
    return stopped


def _suggest_commands(board: Board, commands: list[str]) -> None:
    board.print_line("")
    board.print_line(text("next"))
    for command in commands:
        board.print_line(f"  {_command_name()} {command}", style="cyan")
    board.print_line("")
    board.print_line(text("how to stop"), style="dim")


def _command_name() -> str:
    """How this program was called, so that what we say can be typed."""
    here = Path(sys.argv[0])
    if here.name == "__main__.py":
        program = f"{Path(sys.executable).name} -m retoma"
    elif (found := shutil.which(here.name)) and Path(found).resolve() == here.resolve():
        program = here.name
    else:
        program = str(here.relative_to(Path.cwd()) if here.is_relative_to(Path.cwd()) else here)
    return f"{program} --home {os.environ['RETOMA_HOME']}" if "home" in SETTINGS_FROM_FLAGS else program


def _database_address(client: Client, settings: Settings) -> str:
    return escape_text(str(settings.home) if settings.database_url is None else client.database.address)
