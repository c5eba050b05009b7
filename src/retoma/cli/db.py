"""`retoma db ...`: manage the database schema."""

from __future__ import annotations

from typing import Annotated

import typer
from pydantic import SecretStr

from retoma.backups import move_database
from retoma.cli import printing
from retoma.cli.backup import get_actor, make_report
from retoma.cli.command_setup import async_command, open_database, read_settings
from retoma.cli.database_urls import mask_password
from retoma.cli.options import DetailFormat, DetailOutput
from retoma.store import migrate
from retoma.store.database import Database

db = typer.Typer(name="db", no_args_is_help=True, help="Manage the database schema.")


@db.command()
@async_command
async def upgrade(output: DetailOutput = DetailFormat.TABLE) -> None:
    """Upgrade the schema to this release. Does nothing if it is current.

    \b
    Example:
      RETOMA_DATABASE_URL=postgresql://me@db/work retoma db upgrade
    """
    async with await Database.open(read_settings()) as database:
        applied = await database.upgrade()
    done = f"{', '.join(applied)} applied" if applied else "already up to date"
    printing.print_result({"applied": applied}, f"{database.address}: {done}", output)


@db.command()
@async_command
async def status(output: DetailOutput = DetailFormat.TABLE) -> None:
    """Show the schema version. Exits with 1 if the schema is not current."""
    async with await Database.open(read_settings()) as database, database.connection() as connection:
        found = await migrate.get_status(connection)
    text = f"{database.address}: {describe_schema(found)}"
    printing.print_result(vars(found) | {"is_current": found.is_current}, text, output)
    if not found.is_current:
        raise typer.Exit(1)


@db.command()
@async_command
async def move(
    to: Annotated[
        str, typer.Option("--to", metavar="URL", help="URL of an empty database on your own PostgreSQL server.")
    ],
    output: DetailOutput = DetailFormat.TABLE,
) -> None:
    """Move the embedded database to your own PostgreSQL server. Stop all workers and servers first.

    The files stay where they are. The old data stays, too, but the embedded server no longer starts with it.

    \b
    Example:
      retoma db move --to postgresql://retoma@db.example.com/retoma
    """
    settings = read_settings()
    if settings.database_url is not None:
        raise typer.BadParameter(
            "RETOMA_DATABASE_URL is set, so there is no embedded database to move: to move from one server to another, "
            "use `retoma backup` and `retoma restore`"
        )
    target_settings = settings.model_copy(update={"database_url": SecretStr(to)})
    async with await Database.open(target_settings) as target, open_database(settings) as source:
        moved = await move_database(
            source, target, actor=get_actor(), heartbeat_timeout=settings.heartbeat_timeout, report=make_report()
        )
    setting = f"RETOMA_DATABASE_URL={mask_password(to)}"
    text = f"moved {moved.rows} rows of {moved.tables} tables to {target.address}. From now on, set {setting}"
    printing.print_result(vars(moved) | {"to": target.address, "setting": setting}, text, output)


@db.command()
@async_command
async def url(
    with_password: Annotated[bool, typer.Option("--with-password", help="Include the password.")] = False,
) -> None:
    """Print the database URL for other tools.

    An embedded database runs only while a Retoma process uses it.

    \b
    Example:
      psql "$(retoma db url --with-password)"
    """
    async with await Database.open(read_settings()) as database:
        print(database.url if with_password else mask_password(database.url))


def describe_schema(status: migrate.SchemaStatus) -> str:
    if status.is_current:
        return f"schema {status.applied}, up to date"
    if status.is_unfinished:
        return "a restore is in progress, or was interrupted: `retoma restore BACKUP --replace`"
    if status.is_prerelease:
        return "schema of a prerelease: create a new database, or drop the schema `retoma`"
    if status.applied > status.newest:
        return f"schema {status.applied} is newer than {status.newest} of this release: upgrade Retoma"
    if status.applied == status.newest:
        return f"schema {status.applied}, but its functions belong to another release: run `retoma db upgrade`"
    return f"schema {status.applied} of {status.newest}: run `retoma db upgrade`"
