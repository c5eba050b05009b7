"""`retoma pools ...`: manage pools."""

from __future__ import annotations

from typing import Annotated, Any

import typer

from retoma.cli import printing
from retoma.cli.command_setup import open_client, read_settings, run_async
from retoma.cli.options import DetailFormat, DetailOutput, ListFormat, ListOutput
from retoma.cli.printing import Column

pools = typer.Typer(no_args_is_help=True, help="Manage pools: shared capacity and rate limits.")
_COLUMNS = [
    Column("name", "pool"),
    Column("capacity"),
    Column("used"),
    Column("holders"),
    Column("waiting"),
    Column("rate", formatter=lambda rate: "" if rate is None else f"{rate:g}/s"),
    Column("burst"),
    Column("per_tenant", "per tenant"),
    Column("paused_until", "paused until", printing.format_time),
    Column("trouble"),
    Column("open_until", "retried at", printing.format_time),
]


@pools.command("list")
def list_pools(output: ListOutput = ListFormat.TABLE) -> None:
    """List pools with their slots and waiting jobs."""
    run_async(_list(output))


@pools.command("set")
def set_pool(
    pool: Annotated[str, typer.Argument(metavar="POOL", help="The pool's name.")],
    capacity: Annotated[int | None, typer.Option("--capacity", min=0, help="Number of slots.")] = None,
    rate: Annotated[
        float | None, typer.Option("--rate", min=0, help="Jobs that may start per second; 0 removes the limit.")
    ] = None,
    burst: Annotated[int | None, typer.Option("--burst", min=1, help="Jobs that may start at once.")] = None,
    per_tenant: Annotated[
        int | None, typer.Option("--per-tenant", min=0, help="Slots that one tenant may hold; 0 removes the limit.")
    ] = None,
    resume: Annotated[bool, typer.Option("--resume", help="End a pause that the provider requested.")] = False,
    output: DetailOutput = DetailFormat.TABLE,
) -> None:
    """Change a pool while runs are in progress. Running jobs keep their slots.

    The change lasts until the application declares different values.

    \b
    Example:
      retoma pools set gpu --capacity 5
    """
    limits = {"capacity": capacity, "rate": rate, "burst": burst, "per_tenant": per_tenant}
    if all(limit is None for limit in limits.values()) and not resume:
        raise typer.BadParameter("nothing to change: use --capacity, --rate, --burst, --per-tenant or --resume")
    run_async(_set(pool, limits, resume, output))


async def _list(output: ListFormat) -> None:
    async with open_client(read_settings()) as client:
        found = await client.pools.list()
    printing.print_rows([vars(pool) for pool in found], _COLUMNS, output, "no pools; applications declare them")


async def _set(name: str, limits: dict[str, Any], resume: bool, output: DetailFormat) -> None:
    async with open_client(read_settings()) as client:
        changed = await client.pools.update(name, **limits, resume=resume)
    if output is DetailFormat.JSON:
        print(printing.to_json(vars(changed)))
    else:
        printing.stdout().print(printing.make_table([vars(changed)], _COLUMNS))
