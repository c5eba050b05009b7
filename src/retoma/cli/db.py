"""`retoma db ...`: the database and its schema."""

from __future__ import annotations

from typing import Annotated

import typer

from retoma.cli import output
from retoma.cli.addresses import masked
from retoma.cli.options import Shape, ShortFormat
from retoma.cli.session import in_loop, read_settings
from retoma.store import migrate
from retoma.store.database import Database

db = typer.Typer(no_args_is_help=True, help="The database and its schema.")


@db.command()
def upgrade(how: Shape = ShortFormat.TABLE) -> None:
    """Bring the schema to this release. Does nothing if it is there already.

    \b
    RETOMA_DATABASE_URL=postgresql://me@db/work retoma db upgrade
    """
    in_loop(_upgrade(how))


@db.command()
def status(how: Shape = ShortFormat.TABLE) -> None:
    """Say where the schema stands. Exits with 1 if it is not of this release."""
    in_loop(_status(how))


@db.command()
def url(
    with_password: Annotated[bool, typer.Option("--with-password", help="Print the password too.")] = False,
) -> None:
    """Print the database's address, for other tools.

    \b
    psql "$(retoma db url --with-password)"     (the embedded one runs only while something uses it)
    """
    in_loop(_url(with_password))


async def _upgrade(how: ShortFormat) -> None:
    async with await Database.open(read_settings()) as database:
        applied = await database.upgrade()
        address = database.address
    if how is ShortFormat.JSON:
        print(output.as_json({"applied": applied}))
    else:
        output.out().print(f"{address}: {', '.join(applied) + ' applied' if applied else 'already up to date'}")


async def _status(how: ShortFormat) -> None:
    async with await Database.open(read_settings()) as database:
        async with database.connection() as connection:
            found = await migrate.status(connection)
        address = database.address
    if how is ShortFormat.JSON:
        print(output.as_json(vars(found) | {"is_current": found.is_current}))
    else:
        output.out().print(f"{address}: {say(found)}")
    if not found.is_current:
        raise typer.Exit(1)


async def _url(with_password: bool) -> None:
    async with await Database.open(read_settings()) as database:
        print(database.url if with_password else masked(database.url))


def say(found: migrate.SchemaStatus) -> str:
    if found.is_current:
        return f"schema {found.applied}, up to date"
    if found.applied > found.newest:
        return f"schema {found.applied} is newer than this release's {found.newest}: upgrade Retoma here"
    if found.applied == found.newest:
        return f"schema {found.applied}, but its functions are of another release: run `retoma db upgrade`"
    return f"schema {found.applied} of {found.newest}: run `retoma db upgrade`"
