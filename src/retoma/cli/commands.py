"""The command tree and its exit codes."""

from __future__ import annotations

import os
import sys
import traceback
from importlib.metadata import version
from io import TextIOWrapper
from pathlib import Path
from typing import Annotated

import typer

from retoma import logs
from retoma.cli import printing, process_exit
from retoma.cli.api_keys import keys
from retoma.cli.bulk_actions import bulk
from retoma.cli.capacity import metrics, pools, queues, workers
from retoma.cli.charges import charges, prices
from retoma.cli.check import check
from retoma.cli.config import SETTINGS_FROM_FLAGS, config
from retoma.cli.db import db
from retoma.cli.deliveries import deliveries
from retoma.cli.dev import dev
from retoma.cli.doctor import doctor
from retoma.cli.password import password
from retoma.cli.reviews import reviews
from retoma.cli.revisions import diff, edit, fork, rerun
from retoma.cli.runs import runs
from retoma.cli.serve import serve
from retoma.cli.start import start
from retoma.cli.webhooks import endpoints, webhooks
from retoma.cli.worker import worker
from retoma.errors import Conflict, InvalidInput, NotFound, RetomaError, UnsafeUrl
from retoma.terminal import escape_text

FAILURE, USAGE, NOT_FOUND, CONFLICT = 1, 2, 3, 4

tree = typer.Typer(no_args_is_help=True, pretty_exceptions_enable=False, rich_markup_mode=None)
for revising in (rerun, edit, fork, diff):
    runs.command()(revising)
for command in (dev, worker, serve, start, metrics, charges, password, check, doctor):
    tree.command()(command)
for group in (runs, reviews, bulk, deliveries, endpoints, webhooks, workers, queues, pools, prices, keys, db, config):
    tree.add_typer(group)


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
