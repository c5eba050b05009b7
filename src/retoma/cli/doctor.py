"""`retoma doctor`: find problems and suggest fixes."""

from __future__ import annotations

import platform
import shutil
import sys
from collections.abc import AsyncIterator, Iterator
from dataclasses import dataclass
from datetime import timedelta
from importlib.metadata import version
from pathlib import Path

import typer
from pydantic import SecretStr
from pydantic_settings import BaseSettings, SettingsConfigDict

from retoma.cli import printing
from retoma.cli.command_setup import read_settings, run_async
from retoma.cli.db import describe_schema
from retoma.cli.extras import EXTRAS, Extra, find_ffmpeg_version
from retoma.cli.options import ListFormat, ListOutput
from retoma.cli.printing import Column
from retoma.cli.serve import NO_PUBLIC_URL, lacks_public_url
from retoma.cli.settings_check import SAME_HOSTS, describe_lacking_workers
from retoma.errors import RetomaError
from retoma.records import WorkerRecord
from retoma.settings import Settings
from retoma.states import RunState
from retoma.store import health, metrics, migrate, servers, workers
from retoma.store.database import Database
from retoma.terminal import escape_text

OK, WARNING, PROBLEM = "ok", "warning", "problem"
OLD_TRANSACTION = timedelta(minutes=1)
LOW_SPACE, NO_SPACE = 2 << 30, 256 << 20
_COLUMNS = [
    Column("level", "", printing.format_state),
    Column("subject", ""),
    Column("message", ""),
    Column("advice", ""),
]


@dataclass(frozen=True)
class Finding:
    level: str
    subject: str
    message: str
    advice: str = ""


class ApplicationVariables(BaseSettings):
    """Variables of the bundled applications, from the same sources. The key itself is never shown."""

    model_config = SettingsConfigDict(env_file=".env", extra="ignore")

    redis_url: str = ""
    runpod_api_key: SecretStr = SecretStr("")
    runpod_endpoint_id: str = ""
    runpod_endpoint_id_img2vid: str = ""
    runpod_endpoint_id_caption: str = ""
    runpod_endpoint_id_addaudio: str = ""

    @property
    def has_endpoint(self) -> bool:
        return any(text for name, text in self if name.startswith("runpod_endpoint_id"))


def doctor(output: ListOutput = ListFormat.TABLE) -> None:
    """Diagnose this installation and suggest fixes. Exits with 1 if there is a problem.

    \b
    Examples:
      retoma doctor
      retoma doctor -o json
    """
    settings = read_settings()
    found = [*_check_machine(settings), *run_async(_check_database(settings))]
    printing.print_rows([vars(finding) for finding in found], _COLUMNS, output, "")
    if any(finding.level == PROBLEM for finding in found):
        raise typer.Exit(1)


def _check_machine(settings: Settings) -> Iterator[Finding]:
    yield Finding(OK, "Python", f"{platform.python_version()} ({sys.executable})")
    packages = ("retoma", "asyncpg", "pydantic", "typer", "rich")
    yield Finding(OK, "versions", ", ".join(f"{package} {version(package)}" for package in packages))
    yield _check_disk(settings.home)
    if lacks_public_url(settings):
        yield Finding(WARNING, "RETOMA_PUBLIC_URL", NO_PUBLIC_URL, "set it, for example to https://retoma.example.com")
    variables = ApplicationVariables()
    if variables.redis_url:
        yield Finding(
            OK,
            "REDIS_URL",
            "set but not needed: PostgreSQL holds queue, leases and webhooks, and changes them in one transaction",
            "remove it",
        )
    for extra in EXTRAS:
        yield _check_extra(extra, settings.app or "")
    yield _check_gpus(variables)


def _check_extra(extra: Extra, app: str) -> Finding:
    """Warn only if the configured application needs the extra; other pipelines need none."""
    subject, users = f"extra {extra.name}", " and ".join(extra.applications)
    missing = extra.list_missing()
    if not missing:
        return Finding(OK, subject, f"installed, for {users}: {extra.describe_installed()}")
    if app.startswith(extra.applications):
        return Finding(WARNING, subject, f"{users} cannot run without {', '.join(missing)}", extra.install_command)
    return Finding(OK, subject, f"not installed; needed only for {users}: {', '.join(missing)}", extra.install_command)


def _check_gpus(variables: ApplicationVariables) -> Finding:
    """Check the GPU provider of the application retoma_apps.gpu."""
    if not variables.runpod_api_key.get_secret_value():
        return _check_offline_gpus()
    if not variables.has_endpoint:
        return Finding(WARNING, "GPUs", "RunPod API key is set, but no endpoint", "set RUNPOD_ENDPOINT_ID")
    return Finding(OK, "GPUs", "RunPod API key is set")


def _check_offline_gpus() -> Finding:
    found = find_ffmpeg_version()
    if found is None:
        return Finding(
            OK, "GPUs", "RUNPOD_API_KEY is not set, and ffmpeg, which replaces GPUs offline, is not installed"
        )
    return Finding(OK, "GPUs", f"RUNPOD_API_KEY is not set: {found} on this machine replaces GPUs offline")


def _check_disk(home: Path) -> Finding:
    folder = next(folder for folder in (home.resolve(), *home.resolve().parents) if folder.exists())
    free = shutil.disk_usage(folder).free
    message = f"{free / (1 << 30):.1f} GiB free at {home}"
    if free < NO_SPACE:
        return Finding(PROBLEM, "disk", message, "free some space, or set RETOMA_HOME to another disk")
    if free < LOW_SPACE:
        return Finding(WARNING, "disk", message, "free some space soon")
    return Finding(OK, "disk", message)


async def _check_database(settings: Settings) -> list[Finding]:
    try:
        async with await Database.open(settings) as database:
            return [finding async for finding in _check_server(database, settings)]
    except RetomaError as error:
        return [Finding(PROBLEM, "database", str(error), "check the database URL with `retoma config show`")]


async def _check_server(database: Database, settings: Settings) -> AsyncIterator[Finding]:
    server = await health.get_server(database)
    kind = "embedded" if settings.database_url is None else "external"
    mode = "polling through a transaction pooler" if database.pooled else "direct connection with LISTEN"
    yield Finding(OK, "database", f"{kind} PostgreSQL {server['version']} at {database.address}, {mode}")
    if server["is_standby"]:
        yield Finding(PROBLEM, "database", "this is a read-only standby", "connect to the primary")
    if not server["is_durable"]:
        yield Finding(
            WARNING,
            "durability",
            "fsync or synchronous_commit is off: a power failure may lose committed work",
            "turn both on, except for tests",
        )
    if server["is_superuser"]:
        yield Finding(
            WARNING,
            "role",
            "Retoma connects as a superuser, so every step can run programs and read files on the database server",
            "create a role (`create role retoma login password ...`), make it the owner of the database "
            "(`alter database ... owner to retoma`), and use it in RETOMA_DATABASE_URL",
        )
    async with database.connection() as connection:
        schema = await migrate.get_status(connection)
    yield Finding(OK if schema.is_current else PROBLEM, "schema", describe_schema(schema))
    for row in await health.list_old_transactions(database, OLD_TRANSACTION):
        yield Finding(
            WARNING,
            "transaction",
            f"pid {row['pid']} ({escape_text(row['user'])} {escape_text(row['application'])}, {row['state']}) "
            f"has been open for {printing.format_duration(row['open_for'])}",
            f"wait for it, or end it: select pg_terminate_backend({row['pid']})",
        )
    if schema.is_current:
        async for finding in _check_work(database, settings.heartbeat_timeout):
            yield finding


async def _check_work(database: Database, heartbeat_timeout: timedelta) -> AsyncIterator[Finding]:
    known = await workers.list_alive(database)
    live = [worker for worker in known if worker.is_alive(heartbeat_timeout)]
    ready = await health.count_ready_by_queue(database)
    open_runs, _ = await metrics.count_open_and_stuck(database)
    yield _check_workers(live, open_runs)
    if live:
        for finding in _check_unserved_pipelines(live, await metrics.count_open_runs(database)):
            yield finding
    for difference in describe_lacking_workers(await servers.list_allowed_hosts(database), live):
        yield Finding(WARNING, "RETOMA_ALLOW_HOSTS", difference, SAME_HOSTS)
    for worker in known:
        if worker not in live:
            yield Finding(
                WARNING,
                "worker",
                f"{worker.name}: last heartbeat {printing.format_duration(worker.heartbeat_age)} ago",
                "start another worker, which takes over its jobs",
            )
    served = {queue for worker in live for queue in worker.queues}
    for queue, jobs in ready.items():
        if queue in served:
            yield Finding(OK, "queue", f"{queue}: {jobs} ready")
        else:
            yield Finding(
                PROBLEM,
                "queue",
                f"{queue}: {jobs} ready, but no live worker serves it",
                f"retoma worker APP -q {queue}",
            )
    async for finding in _check_stuck_runs(database):
        yield finding
    for row in await health.list_undefined_steps(database):
        yield Finding(
            WARNING,
            "step",
            f"{row['pipeline']}: {row['jobs']} jobs wait for step {row['step']!r}, which no live worker defines",
            "see `retoma check APP` for the reason",
        )


def _check_unserved_pipelines(
    live: list[WorkerRecord], open_runs: dict[tuple[str, RunState], int]
) -> Iterator[Finding]:
    """Yield a warning for each pipeline with unfinished runs that no live worker serves."""
    for pipeline in sorted({name for name, _ in open_runs}):
        if not any(worker.serves(pipeline) for worker in live):
            count = sum(runs for (name, _), runs in open_runs.items() if name == pipeline)
            runs = "1 run is waiting" if count == 1 else f"{count} runs are waiting"
            yield Finding(
                WARNING,
                "workers",
                f"no worker serves pipeline {pipeline!r}, and {runs}",
                "retoma worker APP",
            )


async def _check_stuck_runs(database: Database) -> AsyncIterator[Finding]:
    _, stuck = await metrics.count_open_and_stuck(database)
    if stuck:
        message = "1 run is stuck" if stuck == 1 else f"{stuck} runs are stuck"
        yield Finding(WARNING, "runs", message, "see `retoma runs stuck` for the cause")


def _check_workers(live: list[WorkerRecord], open_runs: int) -> Finding:
    if not live and open_runs:
        runs = "1 run is waiting" if open_runs == 1 else f"{open_runs} runs are waiting"
        message = f"no workers are running: {runs}, and no webhook is sent"
        return Finding(WARNING, "workers", message, "retoma worker APP")
    if not live:
        return Finding(OK, "workers", "no workers are running, and no run needs one", "retoma worker APP")
    return Finding(OK, "workers", f"{len(live)} live: " + ", ".join(worker.name for worker in live[:5]))
