"""`retoma dev`: run database, server and worker with one command."""

from __future__ import annotations

import asyncio
import os
import secrets
import shutil
import socket
import sys
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager, closing, contextmanager, suppress
from importlib.metadata import version
from pathlib import Path
from typing import Annotated
from uuid import UUID

import typer

from retoma import private_files
from retoma.app import App
from retoma.cli import application, process_exit, reload, served_applications
from retoma.cli.command_setup import read_settings
from retoma.cli.config import SETTINGS_FROM_FLAGS
from retoma.cli.demo.announcements import announce_reviews, show_demos
from retoma.cli.demo.board import Board, open_board
from retoma.cli.demo.demo import Demo
from retoma.cli.dev_links import DevLinks
from retoma.cli.http_server import bind_socket, get_address, run_server
from retoma.cli.messages import gettext
from retoma.cli.options import AppLocation, Concurrency
from retoma.cli.serve import SERVICE, export_address
from retoma.cli.worker_process import SupervisedWorker
from retoma.client import Client, connect
from retoma.outgoing import LOOPBACK as THIS_MACHINE
from retoma.privileges import hide_process
from retoma.server import make_server
from retoma.settings import Settings
from retoma.terminal import escape_text
from retoma.tracing import TRACES

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
            help="Run the application's demo. Without APP: run the built-in demo, which kills its own worker.",
        ),
    ] = False,
    once: Annotated[bool, typer.Option("--once", help="Exit after the built-in demo.")] = False,
    concurrency: Concurrency = 20,
    port: Annotated[
        int | None,
        typer.Option(
            "--port", min=0, max=65535, help="Port of the server; 0 selects a free port (RETOMA_PORT or PORT)."
        ),
    ] = None,
    name: Annotated[
        str | None,
        typer.Option("--name", help="Your name in the history of runs. Default: your user name (RETOMA_DEV_NAME)."),
    ] = None,
) -> None:
    """Run an application on this machine, with database, server and worker.

    The worker restarts if it crashes. Server and worker restart when a source file changes; unfinished runs continue.

    Uses an embedded database in .retoma of the working directory, unless RETOMA_DATABASE_URL is set.

    \b
    Examples:
      retoma dev --demo
      retoma dev film.py
      retoma dev retoma_apps --demo
    """
    built_in = demo and not app
    if once and not built_in:
        raise typer.BadParameter("--once requires --demo without APP")
    # Remove both first: the worker, and with it every step, inherits this environment.
    old_port, token = os.environ.pop(reload.PORT_VARIABLE, None), os.environ.pop(reload.TOKEN_VARIABLE, None)
    token = token or secrets.token_urlsafe(12)
    if old_port or port is not None:
        os.environ["RETOMA_PORT"] = old_port or str(port)
    if name is not None:
        os.environ["RETOMA_DEV_NAME"] = name
    settings = read_settings()
    # A webhook receiver under development runs on this machine. The worker inherits the setting.
    os.environ["RETOMA_ALLOW_HOSTS"] = ",".join(dict.fromkeys((*settings.allow_hosts, *THIS_MACHINE)))
    settings = read_settings()
    if not demo and not (app or settings.app):
        raise typer.BadParameter(
            "no application given: pass one (retoma dev film.py), or run the demo with `retoma dev --demo`"
        )
    location = DEMO if built_in else app or settings.app or ""
    hide_process()
    with bind_socket(settings, LOOPBACK, any_port=True) as listening:
        export_address(listening)
        bound_port = listening.getsockname()[1]  # before the server closes the socket
        loaded = application.load(location, settings)
        if demo and not built_in and not any(each.demo for each in loaded.applications):
            raise typer.BadParameter(f"{location} has no demo; omit --demo, or add App(demo=...)")
        worker = [location, "-c", str(DEMO_CONCURRENCY if built_in else concurrency)]
        with served_applications.record(settings.home, location, loaded):
            work = _dev(loaded, settings, listening, token, location, worker, demo=demo, once=once)
            # A signal may stop the process before the coroutine starts.
            with closing(work), TRACES.exporting(SERVICE):
                code = process_exit.run(work)
    if code == RELOAD_CODE:
        reload.restart(bound_port, token)
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
        board.print_line(
            gettext("Retoma %(version)s, application %(app)s", version=version("retoma"), app=app.name), style="bold"
        )
        board.print_line(gettext("preparing the database ..."), style="dim")
        async with connect(app, settings) as client:
            kind = gettext("embedded PostgreSQL") if settings.database_url is None else gettext("your PostgreSQL")
            address = escape_text(str(settings.home) if settings.database_url is None else client.database.address)
            board.print_line(gettext("database  %(kind)s at %(address)s", kind=kind, address=address))
            async with _serve(app, client, settings, sock, token, board) as links:
                if location == DEMO and demo:
                    return await _run_demo(client, settings, board, worker, once=once)
                async with announce_reviews(client, links, board):
                    if demo:
                        async with show_demos(app, client, links, board):
                            return await _supervise(app, location, board, worker, _set_log_level("warning"))
                    return await _supervise(app, location, board, worker, {})


@asynccontextmanager
async def _serve(
    app: App, client: Client, settings: Settings, sock: socket.socket, token: str, board: Board
) -> AsyncIterator[DevLinks]:
    """Serve the API and the dashboard to local programs that know the token of this start."""
    port = sock.getsockname()[1]
    if settings.port not in (0, port):
        board.print_line(
            gettext("port %(port)s is in use, so the server uses %(other)s", port=settings.port, other=port),
            style="yellow",
        )
    links = DevLinks(get_address(sock), token)
    server = make_server(app, client, settings, dev_token=links.token)
    with _write_key_file(settings.home, links.token) as key:
        # Announce the hosts without loopback: a worker started separately need not allow this machine.
        hosts = [host for host in settings.allow_hosts if host not in THIS_MACHINE]
        async with run_server(server, sock, settings, hosts):
            board.print_line(
                gettext(
                    "server    %(address)s (open it in a browser: it logs you in on this machine)",
                    address=links.add_token(f"{links.address}/"),
                )
            )
            for page in (page for application in app.applications for page in application.pages if page.nav):
                board.print_line(
                    gettext("page      %(address)s", address=links.add_token(f"{links.address}{page.path}"))
                )
            board.print_line(
                gettext("API key   for programs on this machine, until it stops: %(file)s", file=escape_text(str(key)))
            )
            yield links


@contextmanager
def _write_key_file(home: Path, token: str) -> Iterator[Path]:
    """Write the token to a file for other programs of this user while the server runs."""
    file = private_files.create_home(home) / "dev-key"
    private_files.write_file(file, token)
    try:
        yield file
    finally:
        with suppress(OSError):
            if file.read_text() == token:  # another `retoma dev` may have replaced it
                file.unlink()


async def _supervise(app: App, location: str, board: Board, arguments: list[str], environment: dict[str, str]) -> int:
    async def report_exit(pid: int, code: int) -> None:
        board.print_line(
            gettext("the worker (process %(pid)s) exited with code %(code)s; starting another", pid=pid, code=code),
            style="yellow",
        )

    worker = SupervisedWorker(arguments, environment, report_exit)
    supervision = asyncio.create_task(worker.supervise())
    await worker.started.wait()
    board.print_line(
        gettext("worker    process %(pid)s, queues %(queues)s", pid=worker.pid, queues=", ".join(app.queues))
    )
    board.print_line(gettext("webhooks  can also be sent to this machine (only `retoma dev` allows it)"), style="dim")
    _suggest_commands(board, [*_suggest_start(app, location), "runs list", "doctor"])
    reload_task = asyncio.create_task(_stop_when_code_changes(location, worker, board))
    try:
        return await _wait_until_stopped(worker, supervision, board, reload_task)
    finally:
        reload_task.cancel()


async def _stop_when_code_changes(location: str, worker: SupervisedWorker, board: Board) -> None:
    def report_error(error: str) -> None:
        board.print_line(
            gettext(
                "the code changed but cannot be imported, so the old code keeps running: %(error)s",
                error=escape_text(error),
            ),
            style="yellow",
        )

    await reload.wait_for_code_change(location, report_error)
    board.print_line(gettext("the code changed: restarting"), style="yellow")
    worker.stop()


def _suggest_start(app: App, location: str) -> list[str]:
    """Return the command that starts the first pipeline; nothing if the application has its own routes."""
    if any(each.routes for each in app.applications):
        return []
    pipeline = next(iter(app.pipelines.values()))
    fields = pipeline.inputs.model_fields if pipeline.inputs else {}
    required = "".join(f" -i {name}=..." for name, field in fields.items() if field.is_required())
    return [f"start {pipeline.name} {escape_text(location)}{required} --wait"]


async def _run_demo(client: Client, settings: Settings, board: Board, arguments: list[str], *, once: bool) -> int:
    board.print_line("")
    board.print_line(
        gettext(
            "A short film: a script, 12 scenes with narration and an illustration each, and the final cut.\nHalfway "
            "through, this program kills its own worker with SIGKILL. Watch what happens."
        )
    )
    board.print_line("")
    demo = Demo(client, board, settings.heartbeat_timeout_seconds)
    worker = SupervisedWorker(arguments, _set_log_level("error"), lambda *_: demo.on_worker_exit())
    supervision = asyncio.create_task(worker.supervise())
    demo_task = asyncio.create_task(demo.run(worker))
    stopped = _stop_on_signals(worker, board, demo_task)
    try:
        proven = await demo_task
    except asyncio.CancelledError:
        proven = True
    board.clear()
    if once or not proven:
        worker.stop()
    elif not stopped.is_set():
        _suggest_commands(board, suggest_after_demo(demo.run_id))
    await supervision
    if stopped.is_set():
        board.print_line(gettext("stopped; all data is kept"))
    return 0 if proven else 1


def _set_log_level(level: str) -> dict[str, str]:
    """Return an environment that hides log lines below `level`, unless RETOMA_LOG_LEVEL is set."""
    return {"RETOMA_LOG_LEVEL": os.environ.get("RETOMA_LOG_LEVEL", level)}


def suggest_after_demo(run: UUID | None) -> list[str]:
    """Return commands to try after the demo."""
    return ["runs list", f"runs show {run}", f"start demo {DEMO} -i pace=0.2 --wait", "doctor"]


async def _wait_until_stopped(
    worker: SupervisedWorker, supervision: asyncio.Task[None], board: Board, reload_task: asyncio.Task[None]
) -> int:
    stopped = _stop_on_signals(worker, board)
    await supervision
    if reload_task.done() and not stopped.is_set():
        await reload_task
        return RELOAD_CODE
    board.print_line(gettext("stopped; all data is kept"))
    return 0


def _stop_on_signals(
    worker: SupervisedWorker, board: Board, demo_task: asyncio.Task[bool] | None = None
) -> asyncio.Event:
    """Drain the worker at the first Ctrl-C, release its jobs at the second, kill it at the third."""
    stopped = asyncio.Event()

    def stop(requests: int) -> None:
        if requests == 1:
            stopped.set()
            if demo_task is not None:
                demo_task.cancel()
                board.clear()
            board.print_line(
                gettext("stopping: running jobs may finish (press Ctrl-C again to stop at once)"), style="yellow"
            )
        if requests <= 2:
            worker.stop()
        else:
            worker.kill()

    process_exit.on_stop_signal(stop)
    return stopped


def _suggest_commands(board: Board, commands: list[str]) -> None:
    board.print_line("")
    board.print_line(gettext("In another terminal, in this folder:"))
    for command in commands:
        board.print_line(f"  {_command_name()} {command}", style="cyan")
    board.print_line("")
    board.print_line(gettext("Ctrl-C stops it: running jobs may finish. Press it again to stop at once."), style="dim")


def _command_name() -> str:
    """Return the command by which this program was called, for suggestions that can be pasted."""
    path = Path(sys.argv[0])
    if path.name == "__main__.py":
        program = f"{Path(sys.executable).name} -m retoma"
    elif (found := shutil.which(path.name)) and Path(found).resolve() == path.resolve():
        program = path.name
    else:
        program = str(path.relative_to(Path.cwd()) if path.is_relative_to(Path.cwd()) else path)
    return f"{program} --home {os.environ['RETOMA_HOME']}" if "home" in SETTINGS_FROM_FLAGS else program
