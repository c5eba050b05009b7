"""`retoma db ...`: manage the database schema."""

from __future__ import annotations

from typing import Annotated

import typer

from retoma.cli import printing
from retoma.cli.command_setup import read_settings, run_async
from retoma.cli.database_urls import mask_password
from retoma.cli.options import DetailFormat, DetailOutput
from retoma.store import migrate
from retoma.store.database import Database

db = typer.Typer(no_args_is_help=True, help="Manage the database schema.")


@db.command()
def upgrade(output: DetailOutput = DetailFormat.TABLE) -> None:
    """Upgrade the schema to this release. Does nothing if it is current.

    \b
    Example:
      RETOMA_DATABASE_URL=postgresql://me@db/work retoma db upgrade
    """
    run_async(_upgrade_schema(output))


@db.command()
def status(output: DetailOutput = DetailFormat.TABLE) -> None:
    """Show the schema version. Exits with 1 if the schema is not current."""
    run_async(_show_status(output))


@db.command()
def url(
    with_password: Annotated[bool, typer.Option("--with-password", help="Include the password.")] = False,
) -> None:
    """Print the database URL for other tools.

    An embedded database runs only while a Retoma process uses it.

    \b
    Example:
      psql "$(retoma db url --with-password)"
    """
    run_async(_print_url(with_password))


async def _upgrade_schema(output: DetailFormat) -> None:
    async with await Database.open(read_settings()) as database:
        applied = await database.upgrade()
        address = database.address
    if output is DetailFormat.JSON:
        print(printing.to_json({"applied": applied}))
    else:
        printing.stdout().print(f"{address}: {', '.join(applied) + ' applied' if applied else 'already up to date'}")


async def _show_status(output: DetailFormat) -> None:
    async with await Database.open(read_settings()) as database:
        async with database.connection() as connection:
            found = await migrate.get_status(connection)
        address = database.address
    if output is DetailFormat.JSON:
        print(printing.to_json(vars(found) | {"is_current": found.is_current}))
    else:
        printing.stdout().print(f"{address}: {describe_schema(found)}")
    if not found.is_current:
        raise typer.Exit(1)


async def _print_url(with_password: bool) -> None:
    async with await Database.open(read_settings()) as database:
        print(database.url if with_password else mask_password(database.url))


def describe_schema(status: migrate.SchemaStatus) -> str:
    if status.is_current:
        return f"schema {status.applied}, up to date"
    if status.is_prerelease:
        return "schema of a prerelease: create a new database, or drop the schema `retoma`"
    if status.applied > status.newest:
        return f"schema {status.applied} is newer than {status.newest} of this release: upgrade Retoma"
    if status.applied == status.newest:
        return f"schema {status.applied}, but its functions belong to another release: run `retoma db upgrade`"
    return f"schema {status.applied} of {status.newest}: run `retoma db upgrade`"
