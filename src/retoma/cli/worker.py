"""`retoma worker`: run jobs, and send webhooks and notifications, until stopped."""

from __future__ import annotations

import asyncio
import os
import sys
from collections.abc import AsyncIterator, Callable, Coroutine, Iterable
from contextlib import asynccontextmanager
from difflib import get_close_matches
from functools import partial
from typing import Annotated, Any

import typer

from retoma.app import App
from retoma.cli import application, process_exit
from retoma.cli.autoscale import Limits, run_autoscaled
from retoma.cli.command_setup import open_database, read_settings
from retoma.cli.garbage_collection import collect_on_growth, collect_rarely
from retoma.cli.machine import limit_concurrency, read_machine
from retoma.cli.options import AppLocation, Concurrency
from retoma.cli.settings_check import SettingsCheck
from retoma.client import Client
from retoma.client.schedule_starts import run_schedules
from retoma.encryption import Keyring
from retoma.engine.background_loops import run_in_background, run_with_restarts
from retoma.engine.retention import remove_forever
from retoma.engine.run_traces import run_tracing
from retoma.errors import UnsafeUrl
from retoma.logs import get_logger
from retoma.notifications.sender import open_sender
from retoma.outgoing import Guard, HttpClient
from retoma.privileges import hide_process
from retoma.settings import Settings
from retoma.store.database import Database
from retoma.tracing import TRACES
from retoma.webhooks.sender import Sender
from retoma.worker.worker import Worker, make_default_name

log = get_logger(__name__)
SERVICE = "retoma-worker"
MAX_ENDPOINTS = 1_000
FINISH_TIMEOUT = 30.0  # seconds, once every job is recorded, for webhooks under way and the closing of resources
BLOCKED_EXIT_CODE = 70  # exit code after a step blocked the event loop


def worker(
    app: AppLocation = None,
    queue: Annotated[
        list[str] | None,
        typer.Option("-q", "--queue", help="A queue to serve; repeatable. Default: all queues of the application."),
    ] = None,
    concurrency: Concurrency = 20,
    cpus_per_job: Annotated[
        float,
        typer.Option("--cpus-per-job", min=0, help="CPUs that one job uses: run as many jobs at once as fit."),
    ] = 0,
    memory_per_job: Annotated[
        int,
        typer.Option("--memory-per-job", min=0, help="Memory of one job, in MiB: run as many jobs at once as fit."),
    ] = 0,
    name: Annotated[
        str | None, typer.Option("--name", help="Name of the worker in lists and logs.", show_default="host:pid")
    ] = None,
    autoscale: Annotated[
        bool, typer.Option("--autoscale", help="Run as many worker processes on this machine as the queues need.")
    ] = False,
    min_workers: Annotated[int, typer.Option("--min-workers", min=0, help="With --autoscale: at least this many.")] = 0,
    max_workers: Annotated[
        int | None,
        typer.Option("--max-workers", min=1, help="With --autoscale: at most this many.", show_default="no limit"),
    ] = None,
    cpus_per_worker: Annotated[
        float,
        typer.Option(
            "--cpus-per-worker", min=0, help="With --autoscale: CPUs that one process uses; 0 ignores the CPUs."
        ),
    ] = 1.0,
    memory_per_worker: Annotated[
        int, typer.Option("--memory-per-worker", min=1, help="With --autoscale: memory of one process, in MiB.")
    ] = 256,
    cooldown: Annotated[
        float, typer.Option("--cooldown", min=0, help="With --autoscale: seconds until fewer workers are followed.")
    ] = 30.0,
    until_stdin_closes: Annotated[bool, typer.Option("--until-stdin-closes", hidden=True)] = False,
) -> None:
    """Run jobs and send webhooks until stopped.

    SIGTERM or Ctrl-C waits for running jobs (up to RETOMA_DRAIN_SECONDS), releases the others and exits with 0. A
    second signal releases all jobs at once.

    With --cpus-per-job or --memory-per-job, the number of concurrent jobs is at most what the CPUs and the memory that
    is available at the start have room for.

    With --autoscale, this process runs no jobs itself. It starts another process only if a CPU is idle and enough
    memory is available, and drains processes that are not needed.

    \b
    Examples:
      retoma worker film.py
      retoma worker shop.pipelines:app -q image -q audio -c 4
      retoma worker film.py -q render --cpus-per-job 4 --memory-per-job 8192
      retoma worker film.py -q render -c 1 --autoscale --cpus-per-worker 2 --memory-per-worker 2048
    """
    settings = read_settings()
    loaded = application.load(app, settings)
    queues = list(dict.fromkeys(name for part in queue or [] for name in part.split(",") if name))
    _warn_unknown_queues(queues, loaded.queues)
    if autoscale and (cpus_per_job or memory_per_job):
        raise typer.BadParameter("with --autoscale, use --cpus-per-worker and --memory-per-worker")
    concurrency = limit_concurrency(
        concurrency, read_machine(), cpus_per_job=cpus_per_job, memory_per_job=memory_per_job * 2**20
    )
    if autoscale:
        options = [f"--concurrency={concurrency}", *(f"--queue={each}" for each in queues)]
        limits = Limits(min_workers, max_workers, cpus_per_worker, memory_per_worker * 2**20, cooldown)
        run_process(
            run_autoscaled(
                settings,
                queues or loaded.queues,
                [*options, *([] if app is None else [app])],
                name or make_default_name(),
                limits,
            )
        )
    else:
        run_process(_run_worker(loaded, settings, queues, concurrency, name, watches_stdin=until_stdin_closes))


def run_process(work: Coroutine[Any, Any, None], service: str = SERVICE) -> None:
    """Run the main coroutine of a long-lived process, whose traces are those of a service of this name."""
    hide_process()
    collect_rarely()
    with TRACES.exporting(service):
        process_exit.run(_run_with_gc(work), _loop_factory())


async def _run_with_gc(work: Coroutine[Any, Any, None]) -> None:
    async with run_in_background(collect_on_growth()):
        await work


async def _run_worker(
    app: App, settings: Settings, queues: list[str], concurrency: int, name: str | None, *, watches_stdin: bool
) -> None:
    async with open_database(settings) as database:
        settings_check = SettingsCheck(database, settings)
        await settings_check.check_at_start()
        worker = Worker(
            app,
            database,
            settings,
            queues=queues,
            concurrency=concurrency,
            name=name,
            # Nothing else can end a blocked event loop. The process supervisor restarts the worker.
            on_blocked=lambda: os._exit(BLOCKED_EXIT_CODE),
            on_drained=lambda: process_exit.limit_exit(FINISH_TIMEOUT),
        )
        _stop_on_signals(worker)
        if watches_stdin:
            _stop_when_stdin_closes(worker)
        checking = run_in_background(run_with_restarts("settings check", settings_check.keep_checking))
        removing = run_in_background(
            run_with_restarts("retention", partial(remove_forever, database, settings.retention, app.file_stores))
        )
        async with checking, removing, run_tracing(database), _send_and_schedule(app, database, settings):
            await worker.run()
    log.info("worker_stopped", message="the worker has stopped", worker=worker.name)


@asynccontextmanager
async def _send_and_schedule(app: App, database: Database, settings: Settings) -> AsyncIterator[None]:
    """Send webhooks and notifications and start scheduled runs while the block runs, then wait for the responses."""
    guard, keyring = Guard.from_settings(settings), Keyring.from_settings(settings)
    client = Client(
        app,
        database,
        guard,
        heartbeat_timeout=settings.heartbeat_timeout,
        retention=settings.retention,
        keyring=keyring,
    )
    await _warn_refused_hosts(client, guard)
    async with HttpClient(guard) as outgoing, open_sender(app, database, settings, outgoing, keyring) as notifications:
        await notifications.register()
        senders = (Sender(client, settings, outgoing), notifications)
        sending = [asyncio.create_task(sender.run()) for sender in senders]
        try:
            async with run_in_background(run_with_restarts("schedules", partial(run_schedules, client))):
                yield
        finally:
            for sender in senders:
                sender.stop()
            await asyncio.gather(*sending)
            await client.close()


async def _warn_refused_hosts(client: Client, guard: Guard) -> None:
    """Log the endpoints that this worker will not call because its RETOMA_ALLOW_HOSTS excludes them."""
    for endpoint in await client.webhooks.list_endpoints(limit=MAX_ENDPOINTS):
        if endpoint.disabled_at is None:
            try:
                guard.check(endpoint.url)
            except UnsafeUrl as error:
                log.error(
                    "webhook_host_refused",
                    message="this worker refuses to call the host of an endpoint; set its RETOMA_ALLOW_HOSTS to the "
                    "server's",
                    endpoint=endpoint.id,
                    due=endpoint.due,
                    error=error,
                )


def _stop_on_signals(worker: Worker) -> None:
    def stop(requests: int) -> None:
        if requests > 1:
            worker.stop_at_once()
            return
        log.info(
            "worker_stopping",
            message="stopping; running jobs may finish; a second signal stops at once",
            worker=worker.name,
        )
        worker.stop()

    process_exit.on_stop_signal(stop)


def _stop_when_stdin_closes(worker: Worker) -> None:
    """Stop with the parent process, which holds the other end of the pipe."""
    loop = asyncio.get_running_loop()
    descriptor = sys.stdin.fileno()

    def read() -> None:
        if not os.read(descriptor, 1024):
            loop.remove_reader(descriptor)
            worker.stop()

    loop.add_reader(descriptor, read)


def _loop_factory() -> Callable[[], asyncio.AbstractEventLoop] | None:
    try:
        import uvloop
    except ImportError:
        return None
    return uvloop.new_event_loop


def _warn_unknown_queues(queues: Iterable[str], known: list[str]) -> None:
    for queue in queues:
        if queue not in known:
            near = get_close_matches(queue, known, n=1)
            hint = f"did you mean {near[0]!r}?" if near else f"its steps use {', '.join(map(repr, known))}"
            log.warning("queue_unknown", message=f"no step of this application uses queue {queue!r}; {hint}")
