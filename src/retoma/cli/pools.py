"""`retoma pools ...`: shared capacity."""

from __future__ import annotations

from typing import Annotated, Any

import typer

from retoma.cli import printing
from retoma.cli.command_setup import open_client, read_settings, run_async
from retoma.cli.options import DetailFormat, DetailOutput, ListFormat, ListOutput
from retoma.cli.printing import Column

pools = typer.Typer(no_args_is_help=True, help="Shared capacity.")
_COLUMNS = [
    Column("name", "pool"),
    Column("capacity"),
    Column("used"),
    Column("holders"),
    Column("waiting"),
    Column("rate", formatter=lambda given: "" if given is None else f"{given:g}/s"),
    Column("burst"),
    Column("per_tenant", "per tenant"),
    Column("paused_until", "paused until", printing.format_time),
    Column("trouble"),
    Column("open_until", "tried again", printing.format_time),
]


@pools.command("list")
def list_pools(output: ListOutput = ListFormat.TABLE) -> None:
    """List pools: their slots, who holds them, who waits."""
    run_async(_list(output))


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
    output: DetailOutput = DetailFormat.TABLE,
) -> None:
    """Change a pool while everything runs. Jobs that hold slots keep them to their end.

    It stays so until the application declares other numbers.

    \b
    retoma pools set gpu --capacity 5
    """
    numbers = {"capacity": capacity, "rate": rate, "burst": burst, "per_tenant": per_tenant}
    if all(given is None for given in numbers.values()) and not resume:
        raise typer.BadParameter("say what to change: --capacity, --rate, --burst, --per-tenant or --resume")
    run_async(_set(pool, numbers, resume, output))


async def _list(output: ListFormat) -> None:
    async with open_client(read_settings()) as client:
        found = await client.pools.list()
    printing.print_rows(
        [vars(pool) for pool in found], _COLUMNS, output, "no pools: no application has declared one yet"
    )


async def _set(name: str, numbers: dict[str, Any], resume: bool, output: DetailFormat) -> None:
    async with open_client(read_settings()) as client:
        changed = await client.pools.update(name, **numbers, resume=resume)
    if output is DetailFormat.JSON:
        print(printing.to_json(vars(changed)))
    else:
        printing.stdout().print(printing.make_table([vars(changed)], _COLUMNS))
