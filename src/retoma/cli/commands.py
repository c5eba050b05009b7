"""The command tree and its exit codes."""

from __future__ import annotations

import os
import sys
import traceback
from collections.abc import Iterator, Mapping
from functools import cache
from importlib import import_module
from importlib.metadata import version
from io import TextIOWrapper
from pathlib import Path
from typing import Annotated, Any

import typer
from typer.core import TyperGroup

from retoma import logs
from retoma.cli import printing, process_exit
from retoma.cli.config import SETTINGS_FROM_FLAGS
from retoma.cli.secret_files import load_secrets
from retoma.errors import Conflict, InvalidInput, NotFound, RetomaError, UnsafeUrl
from retoma.terminal import escape_text

FAILURE, USAGE, NOT_FOUND, CONFLICT = 1, 2, 3, 4

# Where each command or group of commands is defined, in the order of `retoma --help`.
COMMANDS = {
    "dev": "dev:dev",
    "worker": "worker:worker",
    "serve": "serve:serve",
    "start": "start:start",
    "metrics": "capacity:metrics",
    "charges": "charges:charges",
    "check": "check:check",
    "doctor": "doctor:doctor",
    "runs": "erasure:runs",  # `revisions` and `erasure` add their commands to those of `runs`
    "reviews": "reviews:reviews",
    "schedules": "schedules:schedules",
    "bulk": "bulk_actions:bulk",
    "deliveries": "deliveries:deliveries",
    "endpoints": "webhooks:endpoints",
    "webhooks": "webhooks:webhooks",
    "notifications": "notifications:notifications",
    "workers": "capacity:workers",
    "queues": "capacity:queues",
    "pools": "capacity:pools",
    "prices": "charges:prices",
    "budgets": "budgets:budgets",
    "connections": "connections:connections",
    "keys": "api_keys:keys",
    "audit": "audit:audit",
    "people": "people:people",
    "backup": "backup:backup",
    "restore": "restore:restore",
    "retention": "retention:retention",
    "tenants": "retention:tenants",
    "db": "db:db",
    "config": "config:config",
}


class LazyCommands(Mapping[str, Any]):
    """Imports the module of a command when it is called: most need no server, which takes a second to import."""

    def __getitem__(self, name: str) -> Any:
        return _load_command(name, *COMMANDS[name].split(":"))

    def __iter__(self) -> Iterator[str]:
        return iter(COMMANDS)

    def __len__(self) -> int:
        return len(COMMANDS)


class CommandTree(TyperGroup):
    def __init__(self, **options: Any) -> None:
        super().__init__(**options | {"commands": LazyCommands()})


@cache
def _load_command(name: str, module: str, attribute: str) -> Any:
    command = getattr(import_module(f"retoma.cli.{module}"), attribute)
    parent = typer.Typer(rich_markup_mode=None)
    if isinstance(command, typer.Typer):
        parent.add_typer(command)
    else:
        parent.command(name)(command)
    return typer.main.get_group(parent).commands[name]


tree = typer.Typer(cls=CommandTree, no_args_is_help=True, pretty_exceptions_enable=False, rich_markup_mode=None)


def main() -> None:
    """Run a command. Exit with 0 on success, 1 on failure, 2 for wrong usage, 3 if not found, 4 on conflict."""
    for stream in (sys.stdout, sys.stderr):
        if isinstance(stream, TextIOWrapper):
            stream.reconfigure(errors="replace")  # do not fail on a terminal that cannot print a character
    try:
        _run_command()
    except SystemExit as ended:
        process_exit.finish(ended.code if isinstance(ended.code, int) else int(ended.code is not None))
        raise


def _run_command() -> None:
    try:
        tree()
    except RetomaError as error:
        if os.environ.get("RETOMA_DEBUG"):
            traceback.print_exc()
        printing.stderr().print(f"Error: {escape_text(str(error))}", soft_wrap=True)
        sys.exit(_exit_code(error))


def _print_version(value: bool) -> None:
    if value:
        print(version("retoma"))
        raise typer.Exit


@tree.callback()
def configure(
    home: Annotated[
        Path | None, typer.Option("--home", help="Directory of the embedded database and local files (RETOMA_HOME).")
    ] = None,
    database_url: Annotated[
        str | None, typer.Option("--database-url", help="PostgreSQL connection URL (RETOMA_DATABASE_URL).")
    ] = None,
    _: Annotated[
        bool,
        typer.Option("--version", help="Print the version and exit.", is_eager=True, callback=_print_version),
    ] = False,
) -> None:
    """Run durable pipelines on PostgreSQL.

    \b
    Examples:
      retoma dev --demo            watch a run survive the kill of its worker
      retoma dev film.py           run an application on this machine
      retoma start film film.py    start a run
      retoma runs list             list runs
    """
    # Export options as environment variables, which subprocesses inherit.
    for name, value in (("home", home), ("database_url", database_url)):
        if value is not None:
            os.environ[f"RETOMA_{name.upper()}"] = str(value)
            SETTINGS_FROM_FLAGS.add(name)
    load_secrets()
    logs.configure_logging()


def _exit_code(error: RetomaError) -> int:
    match error:
        case NotFound():
            return NOT_FOUND
        case Conflict():
            return CONFLICT
        case InvalidInput() | UnsafeUrl():
            return USAGE
        case _:
            return FAILURE
