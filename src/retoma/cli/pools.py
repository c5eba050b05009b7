"""`retoma pools ...`: shared capacity."""

from __future__ import annotations

from typing import Annotated, Any

import typer

from retoma.cli import output
from retoma.cli.options import Format, Listing, Shape, ShortFormat
from retoma.cli.output import Column
from retoma.cli.session import in_loop, opened_client, read_settings

pools = typer.Typer(no_args_is_help=True, help="Shared capacity.")
_COLUMNS = [
    Column("name", "pool"),
    Column("capacity"),
    Column("used"),
    Column("holders"),
    Column("waiting"),
    Column("rate", shown=lambda given: "" if given is None else f"{given:g}/s"),
    Column("burst"),
    Column("per_tenant", "per tenant"),
    Column("paused_until", "paused until", output.moment),
    Column("trouble"),
    Column("open_until", "tried again", output.moment),
]


@pools.command("list")
def list_pools(how: Listing = Format.TABLE) -> None:
    """List pools: their slots, who holds them, who waits."""
    in_loop(_list(how))


@pools.command("set")
def set_pool(
    pool: Annotated[str, typer.Argument(metavar="POOL", help="The pool's name.")],
    capacity: Annotated[int | None, typer.Option("--capacity", min=0, help="How many slots it has.")] = None,
    rate: Annotated[
        float | None, typer.Option("--rate", min=0, help="How many jobs may begin in a second; 0: any.")
    ] = None,
    burst: Annotated[int | None, typer.Option("--burst", min=1, help="How many of them may begin at once.")] = None,
    per_tenant: Annotated[
        int | None, typer.Option("--per-tenant", min=0, help="How many slots one tenant may hold; 0: any.")
    ] = None,
    resume: Annotated[bool, typer.Option("--resume", help="End a pause that a provider asked for.")] = False,
    how: Shape = ShortFormat.TABLE,
) -> None:
    """Change a pool while everything runs. Jobs that hold slots keep them to their end.

    It stays so until the application declares other numbers.

    \b
    retoma pools set gpu --capacity 5
    """
    numbers = {"capacity": capacity, "rate": rate, "burst": burst, "per_tenant": per_tenant}
    if all(given is None for given in numbers.values()) and not resume:
        raise typer.BadParameter("say what to change: --capacity, --rate, --burst, --per-tenant or --resume")
    in_loop(_set(pool, numbers, resume, how))


async def _list(how: Format) -> None:
    async with opened_client(read_settings()) as client:
        found = await client.pools()
    output.emit([vars(pool) for pool in found], _COLUMNS, how, "no pools: no application has declared one yet")


async def _set(name: str, numbers: dict[str, Any], resume: bool, how: ShortFormat) -> None:
    async with opened_client(read_settings()) as client:
        changed = await client.set_pool(name, **numbers, resume=resume)
    if how is ShortFormat.JSON:
        print(output.as_json(vars(changed)))
    else:
        output.out().print(output.table([vars(changed)], _COLUMNS))
