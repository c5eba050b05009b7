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

from retoma import early_stop, private
from retoma.app import App
from retoma.cli import application, reload, served_applications
from retoma.cli.config import FLAGS
from retoma.cli.demo.board import Board, open_board
from retoma.cli.demo.demo import Demo
from retoma.cli.demo.showing import showing, telling
from retoma.cli.links import Links
from retoma.cli.listening import address, bound, serving
from retoma.cli.options import AppPlace
from retoma.cli.process import KeptWorker
from retoma.cli.serving import tell_where
from retoma.cli.session import in_loop, read_settings
from retoma.client import Client, connect
from retoma.outgoing import LOOPBACK as THIS_MACHINE
from retoma.privileges import hide_process
from retoma.server import make_server
from retoma.settings import Settings
from retoma.terminal import clean
from retoma.texts import text

DEMO = "retoma.demo:app"
DEMO_CONCURRENCY = 4
LOOPBACK = "127.0.0.1"
RELOAD = -1  # in place of an exit code


def dev(
    app: AppPlace = None,
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
    before, token = os.environ.pop(reload.PORT, None), os.environ.pop(reload.TOKEN, None)
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
    with bound(settings, LOOPBACK, fall_back=True) as listening:
        tell_where(listening)
        here = listening.getsockname()[1]  # before the server closes it
        loaded = application.load(place, settings)
        if demo and not built_in and loaded.demo is None:
            raise typer.BadParameter(f"{place} has nothing to show; leave --demo out, or give it App(demo=...)")
        worker = [place, "-c", str(DEMO_CONCURRENCY if built_in else concurrency)]
        with served_applications.record(settings.home, place, loaded):
            code = in_loop(_dev(loaded, settings, listening, token, place, worker, demo=demo, once=once))
    if code == RELOAD:
        reload.start_again(here, token)
    raise typer.Exit(code)


async def _dev(
    app: App,
    settings: Settings,
    listening: socket.socket,
    token: str,
    place: str,
    worker: list[str],
    *,
    demo: bool,
    once: bool,
) -> int:
    with open_board() as board:
        board.say(text("title", version=version("retoma"), app=app.name), style="bold")
        board.say(text("preparing"), style="dim")
        async with connect(app, settings) as client:
            kind = text("embedded" if settings.database_url is None else "own")
            board.say(text("database", kind=kind, address=_address(client, settings)))
            async with _served(app, client, settings, listening, token, board) as links:
                if place == DEMO and demo:
                    return await _demo(client, settings, board, worker, once=once)
                async with telling(client, links, board):
                    if demo and app.demo:
                        async with showing(app.demo, client, links, board):
                            return await _keep(app, place, board, worker, _quiet("warning"))
                    return await _keep(app, place, board, worker, {})


@asynccontextmanager
async def _served(
    app: App, client: Client, settings: Settings, listening: socket.socket, token: str, board: Board
) -> AsyncIterator[Links]:
    """Serve the API and the pages to programs on this machine that know the token of this start."""
    port = listening.getsockname()[1]
    if settings.port not in (0, port):
        board.say(text("port taken", port=settings.port, other=port), style="yellow")
    links = Links(address(listening), token)
    server = make_server(app, client, settings, development=links.token)
    with _key_file(settings.home, links.token) as key:
        # Without its own: a worker that is started later, by itself, need not allow this machine.
        hosts = [host for host in settings.allow_hosts if host not in THIS_MACHINE]
        async with serving(server, listening, settings, hosts):
            board.say(text("server", address=links.add_token(f"{links.address}/")))
            for page in app.pages:
                if page.nav:
                    board.say(text("page", address=links.add_token(f"{links.address}{page.path}")))
            board.say(text("api key", file=clean(str(key))))
            yield links


@contextmanager
def _key_file(home: Path, token: str) -> Iterator[Path]:
    """Keep the token where programs of this user find it, while the server runs."""
    file = private.make_home(home) / "dev-key"
    private.write(file, token)
    try:
        yield file
    finally:
        with suppress(OSError):
            if file.read_text() == token:  # another `retoma dev` of this home may have written its own
                file.unlink()


async def _keep(app: App, place: str, board: Board, arguments: list[str], environment: dict[str, str]) -> int:
    async def told(pid: int, code: int) -> None:
        board.say(text("worker ended", pid=pid, code=code), style="yellow")

    kept = KeptWorker(arguments, environment, told)
    keeping = asyncio.create_task(kept.keep())
    await kept.started.wait()
    board.say(text("worker", pid=kept.pid, queues=", ".join(app.queues)))
    board.say(text("webhooks"), style="dim")
    _say_next(board, [*_first_start(app, place), "runs list", "doctor"])
    changing = asyncio.create_task(_stop_when_code_changes(place, kept, board))
    try:
        return await _until_stopped(kept, keeping, board, changing)
    finally:
        changing.cancel()


async def _stop_when_code_changes(place: str, kept: KeptWorker, board: Board) -> None:
    def tell(broken: str) -> None:
        board.say(text("reload failed", error=clean(broken)), style="yellow")

    await reload.until_code_changes(place, tell)
    board.say(text("reloading"), style="yellow")
    kept.stop()


def _first_start(app: App, place: str) -> list[str]:
    """How its first pipeline is started, unless its users do so by routes of its own."""
    if app.routes:
        return []
    pipeline = next(iter(app.pipelines.values()))
    fields = pipeline.inputs.model_fields if pipeline.inputs else {}
    needed = "".join(f" -i {name}=..." for name, field in fields.items() if field.is_required())
    return [f"start {pipeline.name} {clean(place)}{needed} --wait"]


async def _demo(client: Client, settings: Settings, board: Board, arguments: list[str], *, once: bool) -> int:
    board.say("")
    board.say(text("demo"))
    board.say("")
    film = Demo(client, board, settings.silence_seconds)
    kept = KeptWorker(arguments, _quiet("error"), lambda *_: film.worker_died())
    keeping = asyncio.create_task(kept.keep())
    shown = asyncio.create_task(film.run(kept))
    stopped = _on_signals(kept, board, shown)
    try:
        proven = await shown
    except asyncio.CancelledError:
        proven = True
    board.clear()
    if once or not proven:
        kept.stop()
    elif not stopped.is_set():
        _say_next(board, after_demo(film.run_id))
    await keeping
    if stopped.is_set():
        board.say(text("stopped"))
    return 0 if proven else 1


def _quiet(level: str) -> dict[str, str]:
    """So that what a demo says is not lost among log lines, unless they are asked for."""
    return {"RETOMA_LOG_LEVEL": os.environ.get("RETOMA_LOG_LEVEL", level)}


def after_demo(run: UUID | None) -> list[str]:
    """Commands that can be pasted."""
    return ["runs list", f"runs show {run}", f"start demo {DEMO} -i pace=0.2 --wait", "doctor"]


async def _until_stopped(
    kept: KeptWorker, keeping: asyncio.Task[None], board: Board, changing: asyncio.Task[None]
) -> int:
    asked = _on_signals(kept, board)
    await keeping
    if changing.done() and not asked.is_set():
        await changing
        return RELOAD
    board.say(text("stopped"))
    return 0


def _on_signals(kept: KeptWorker, board: Board, shown: asyncio.Task[bool] | None = None) -> asyncio.Event:
    """The first Ctrl-C lets the worker drain, the second makes it give back its jobs, the third kills it."""
    loop = asyncio.get_running_loop()
    asked = 0
    stopped = asyncio.Event()

    def stop() -> None:
        nonlocal asked
        asked += 1
        if asked == 1:
            stopped.set()
            if shown is not None:
                shown.cancel()
                board.clear()
            board.say(text("stopping"), style="yellow")
        if asked <= 2:
            kept.stop()
        else:
            kept.kill()

    for number in (signal.SIGINT, signal.SIGTERM):
        loop.add_signal_handler(number, stop)
    if early_stop.was_asked():
        stop()
    return stopped


def _say_next(board: Board, commands: list[str]) -> None:
    board.say("")
    board.say(text("next"))
    for command in commands:
        board.say(f"  {_program()} {command}", style="cyan")
    board.say("")
    board.say(text("how to stop"), style="dim")


def _program() -> str:
    """How this program was called, so that what we say can be typed."""
    here = Path(sys.argv[0])
    if here.name == "__main__.py":
        program = f"{Path(sys.executable).name} -m retoma"
    elif (found := shutil.which(here.name)) and Path(found).resolve() == here.resolve():
        program = here.name
    else:
        program = str(here.relative_to(Path.cwd()) if here.is_relative_to(Path.cwd()) else here)
    return f"{program} --home {os.environ['RETOMA_HOME']}" if "home" in FLAGS else program


def _address(client: Client, settings: Settings) -> str:
    return clean(str(settings.home) if settings.database_url is None else client.database.address)
