"""`retoma doctor`: find problems and suggest fixes."""

from __future__ import annotations

import platform
import shutil
import sys
from collections.abc import AsyncIterator, Iterator, Sequence
from datetime import timedelta
from importlib.metadata import version
from pathlib import Path

import typer

from retoma.app import App
from retoma.checks import Finding, check_extra, list_extras
from retoma.cli import application, printing
from retoma.cli.command_setup import read_settings, run_async
from retoma.cli.connection_checks import check_connections
from retoma.cli.db import describe_schema
from retoma.cli.options import ListFormat, ListOutput
from retoma.cli.printing import Column
from retoma.cli.serve import NO_PUBLIC_URL, lacks_public_url
from retoma.cli.served_applications import load_all_served
from retoma.cli.settings_check import SAME_HOSTS, describe_lacking_workers
from retoma.errors import RetomaError, describe_error
from retoma.records import Worker
from retoma.settings import Settings
from retoma.states import RunState
from retoma.store import backups, health, metrics, migrate, restores, servers, workers
from retoma.store.database import Database
from retoma.terminal import escape_text
from retoma.tracing.traces import check_traces

OLD_TRANSACTION = timedelta(minutes=1)
OLD_BACKUP = timedelta(days=7)
LOW_SPACE, NO_SPACE = 2 << 30, 256 << 20
_COLUMNS = [
    Column("level", "", printing.format_state),
    Column("subject", ""),
    Column("message", ""),
    Column("advice", ""),
]


def doctor(output: ListOutput = ListFormat.TABLE) -> None:
    """Diagnose this installation and suggest fixes. Exits with 1 if there is a problem.

    \b
    Examples:
      retoma doctor
      retoma doctor -o json
    """
    settings = read_settings()
    loaded, failed = _load_applications(settings)
    found = [
        *_check_machine(settings),
        *failed,
        *_check_applications(loaded),
        *run_async(_check_database(settings, loaded)),
    ]
    printing.print_rows(found, _COLUMNS, output)
    if any(finding.level == "problem" for finding in found):
        raise typer.Exit(1)


def _check_machine(settings: Settings) -> Iterator[Finding]:
    yield Finding("ok", "Python", f"{platform.python_version()} ({sys.executable})")
    packages = ("retoma", "asyncpg", "pydantic", "typer", "rich")
    yield Finding("ok", "versions", ", ".join(f"{package} {version(package)}" for package in packages))
    yield _check_disk(settings.home)
    if lacks_public_url(settings):
        yield Finding(
            "warning", "RETOMA_PUBLIC_URL", NO_PUBLIC_URL, "set it, for example to https://retoma.example.com"
        )
    yield check_traces()


def _load_applications(settings: Settings) -> tuple[list[App], list[Finding]]:
    """Return the configured application and those that it includes or, without one, those that local servers serve."""
    try:
        loaded = [application.load(None, settings)] if settings.app else load_all_served(settings)
    except RetomaError as error:
        return [], [Finding("problem", "application", str(error))]
    return list(dict.fromkeys(each for one in loaded for each in (one, *one.applications))), []


def _check_applications(loaded: Sequence[App]) -> Iterator[Finding]:
    """Yield the findings of these applications, and the extras that they do not mention."""
    checked = set()
    for app in loaded:
        try:
            for finding in app.checks() if app.checks else ():
                checked.add(finding.subject)
                yield finding
        except Exception as error:  # noqa: BLE001  (application code)
            yield Finding("warning", "application", f"the checks of {app.name!r} failed: {describe_error(error)}")
    yield from (
        finding for extra in list_extras() if (finding := check_extra(extra, if_missing="ok")).subject not in checked
    )


def _check_disk(home: Path) -> Finding:
    folder = next(folder for folder in (home.resolve(), *home.resolve().parents) if folder.exists())
    free = shutil.disk_usage(folder).free
    message = f"{free / (1 << 30):.1f} GiB free at {home}"
    if free < NO_SPACE:
        return Finding("problem", "disk", message, "free some space, or set RETOMA_HOME to another disk")
    if free < LOW_SPACE:
        return Finding("warning", "disk", message, "free some space soon")
    return Finding("ok", "disk", message)


async def _check_database(settings: Settings, loaded: Sequence[App]) -> list[Finding]:
    try:
        async with await Database.open(settings) as database:
            found = [finding async for finding in _check_server(database, settings)]
            return [*found, *await check_connections(database, settings, loaded)]
    except RetomaError as error:
        return [Finding("problem", "database", str(error), "check the database URL with `retoma config show`")]


async def _check_server(database: Database, settings: Settings) -> AsyncIterator[Finding]:
    server = await health.get_server(database)
    kind = "embedded" if settings.database_url is None else "external"
    mode = "polling through a transaction pooler" if database.pooled else "direct connection with LISTEN"
    yield Finding("ok", "database", f"{kind} PostgreSQL {server['version']} at {database.address}, {mode}")
    if server["is_standby"]:
        yield Finding("problem", "database", "this is a read-only standby", "connect to the primary")
    if not server["is_durable"]:
        yield Finding(
            "warning",
            "durability",
            "fsync or synchronous_commit is off: a power failure may lose committed work",
            "turn both on, except for tests",
        )
    if server["is_superuser"]:
        yield Finding(
            "warning",
            "role",
            "Retoma connects as a superuser, so every step can run programs and read files on the database server",
            "create a role (`create role retoma login password ...`), make it the owner of the database "
            "(`alter database ... owner to retoma`), and use it in RETOMA_DATABASE_URL",
        )
    async with database.connection() as connection:
        schema = await migrate.get_status(connection)
    yield Finding("ok" if schema.is_current else "problem", "schema", describe_schema(schema))
    for row in await health.list_old_transactions(database, OLD_TRANSACTION):
        yield Finding(
            "warning",
            "transaction",
            f"pid {row['pid']} ({escape_text(row['user'])} {escape_text(row['application'])}, {row['state']}) "
            f"has been open for {printing.format_duration(row['open_for'])}",
            f"wait for it, or end it: select pg_terminate_backend({row['pid']})",
        )
    if schema.is_current:
        async for finding in _check_backups(database):
            yield finding
        async for finding in _check_work(database, settings.heartbeat_timeout):
            yield finding


async def _check_backups(database: Database) -> AsyncIterator[Finding]:
    last = await backups.get_last_backup(database)
    if last is None:
        yield Finding("ok", "backup", "none was taken with `retoma backup`", "retoma backup")
    else:
        taken_at, age = last
        message = f"the last one was taken {printing.format_duration(age)} ago, at {printing.format_time(taken_at)}"
        yield Finding("warning" if age > OLD_BACKUP else "ok", "backup", message, "retoma backup")
    held = await restores.count_held(database)
    if held.total:
        yield Finding(
            "warning",
            "restore",
            f"{held.webhooks} webhooks and {held.notifications} notifications are held since the database was restored",
            "send them with `retoma backup release-held`, or do not: `retoma backup drop-held`",
        )


async def _check_work(database: Database, heartbeat_timeout: timedelta) -> AsyncIterator[Finding]:
    known = await workers.list_alive(database)
    live = [worker for worker in known if worker.is_alive(heartbeat_timeout)]
    ready = await health.count_ready_by_queue(database)
    open_runs, stuck = await metrics.count_open_and_stuck(database)
    yield _check_workers(live, open_runs)
    if live:
        for finding in _check_unserved_pipelines(live, await metrics.count_open_runs(database)):
            yield finding
    for difference in describe_lacking_workers(await servers.list_allowed_hosts(database), live):
        yield Finding("warning", "RETOMA_ALLOW_HOSTS", difference, SAME_HOSTS)
    for worker in known:
        if worker not in live:
            yield Finding(
                "warning",
                "worker",
                f"{worker.name}: last heartbeat {printing.format_duration(worker.heartbeat_age)} ago",
                "start another worker, which takes over its jobs",
            )
    served = {queue for worker in live if not worker.is_draining for queue in worker.queues}
    for queue, jobs in ready.items():
        if queue in served:
            yield Finding("ok", "queue", f"{queue}: {jobs} ready")
        else:
            yield Finding(
                "problem",
                "queue",
                f"{queue}: {jobs} ready, but no running worker serves it",
                f"retoma worker APP -q {queue}",
            )
    if stuck:
        yield Finding("warning", "runs", _count_runs(stuck, "stuck"), "see `retoma runs stuck` for the cause")
    for row in await health.list_undefined_steps(database):
        yield Finding(
            "warning",
            "step",
            f"{row['pipeline']}: {row['jobs']} jobs wait for step {row['step']!r}, which no running worker defines",
            "see `retoma check APP` for the reason",
        )


def _check_unserved_pipelines(live: list[Worker], open_runs: dict[tuple[str, RunState], int]) -> Iterator[Finding]:
    """Yield a warning for each pipeline with unfinished runs that no running worker serves."""
    for pipeline in sorted({name for name, _ in open_runs}):
        if not any(worker.serves(pipeline) for worker in live):
            count = sum(runs for (name, _), runs in open_runs.items() if name == pipeline)
            message = f"no worker serves pipeline {pipeline!r}, and {_count_runs(count, 'waiting')}"
            yield Finding("warning", "workers", message, "retoma worker APP")


def _check_workers(live: list[Worker], open_runs: int) -> Finding:
    if not live and open_runs:
        message = f"no workers are running: {_count_runs(open_runs, 'waiting')}, and no webhook is sent"
        return Finding("warning", "workers", message, "retoma worker APP")
    if not live:
        return Finding("ok", "workers", "no workers are running, and no run needs one", "retoma worker APP")
    return Finding("ok", "workers", f"{len(live)} running: " + ", ".join(worker.name for worker in live[:5]))


def _count_runs(count: int, state: str) -> str:
    return f"1 run is {state}" if count == 1 else f"{count} runs are {state}"
