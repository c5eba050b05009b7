"""`retoma charges` and `retoma prices ...`: the cost of runs and the prices of providers."""

from __future__ import annotations

from typing import Annotated

import typer

from retoma.cli import printing
from retoma.cli.command_setup import async_command, client_command, open_client, read_settings
from retoma.cli.inputs import read_past
from retoma.cli.lookups import find_run
from retoma.cli.options import ListFormat, ListOutput, OnlyTenant, Since, Until, limit_option
from retoma.cli.printing import Column
from retoma.client import ChargedBy, Client

prices = typer.Typer(name="prices", no_args_is_help=True, help="Manage the prices of providers.")
_MICROS_PER_DOLLAR = 1_000_000


def format_dollars(micros: int) -> str:
    return f"${micros / _MICROS_PER_DOLLAR:,.6f}"


_RUN_COLUMN = Column("run")
_TITLE_COLUMN = Column("title", max_length=40)
_COLUMNS = [
    Column("tenant"),
    _RUN_COLUMN,
    *map(Column, ("step", "item", "provider", "resource", "day", "charges")),
    Column("tokens_in", "tokens in"),
    Column("tokens_out", "tokens out"),
    Column("units"),
    Column("micros", "US$", format_dollars),
    Column("unpriced", "without price"),
]
_PRICE_COLUMNS = [
    Column("provider"),
    Column("resource"),
    Column("version"),
    Column("since", formatter=printing.format_time),
    Column("tokens_in", "per million tokens in", format_dollars),
    Column("tokens_out", "per million tokens out", format_dollars),
    Column("unit", "per unit", format_dollars),
]


@async_command
async def charges(
    run: Annotated[
        str | None, typer.Argument(metavar="RUN", help="Only this run: its ID or a unique prefix of it.")
    ] = None,
    by: Annotated[
        list[str] | None,
        typer.Option(
            "--by", metavar="FIELD", help="Group by tenant, run, step, item, provider, resource or day; repeatable."
        ),
    ] = None,
    tenant: OnlyTenant = None,
    since: Since = None,
    until: Until = None,
    limit: Annotated[int, limit_option("totals")] = 100,
    output: ListOutput = ListFormat.TABLE,
) -> None:
    """Show costs, including those of failed attempts.

    Groups by step for a run, otherwise by tenant.

    \b
    Examples:
      retoma charges 0199a3 --by step --by item
      retoma charges --by provider --by resource --since 2026-11-01
    """
    groups = _parse_groups(by or (["step"] if run else ["tenant"]))
    async with open_client(read_settings()) as client:
        found_run = None if run is None else await find_run(client, run)
        now = await client.now()
        found = await client.costs.get_totals(
            by=groups,
            run=found_run,
            tenant=tenant,
            since=read_past("--since", since, now),
            until=read_past("--until", until, now),
            limit=limit,
        )
        titles = {total.run: (await client.runs.get(total.run)).about for total in found if total.run}
    columns = [column for column in _COLUMNS if column.key not in _GROUPS or column.key in groups]
    if "run" in groups:
        columns.insert(columns.index(_RUN_COLUMN) + 1, _TITLE_COLUMN)
    rows = [vars(total) | ({"title": titles[total.run]} if total.run else {}) for total in found]
    printing.print_rows(rows, columns, output, "no charges")


@prices.command("list")
@client_command
async def list_prices(client: Client, output: ListOutput = ListFormat.TABLE) -> None:
    """List every version of every price."""
    found = await client.costs.list_prices()
    printing.print_rows(found, _PRICE_COLUMNS, output, "no prices; add one with `retoma prices set`")


@prices.command("set")
@client_command
async def set_price(
    client: Client,
    provider: Annotated[str, typer.Argument(metavar="PROVIDER", help="The provider, as named in the steps.")],
    resource: Annotated[
        str, typer.Argument(metavar="RESOURCE", help="What is charged, such as a model, a voice or a machine type.")
    ],
    tokens_in: Annotated[float, typer.Option("--tokens-in", min=0, help="US$ per million input tokens.")] = 0,
    tokens_out: Annotated[float, typer.Option("--tokens-out", min=0, help="US$ per million output tokens.")] = 0,
    unit: Annotated[float, typer.Option("--unit", min=0, help="US$ per unit.")] = 0,
    output: ListOutput = ListFormat.TABLE,
) -> None:
    """Set a price for future charges. Recorded charges do not change.

    \b
    Example:
      retoma prices set openrouter openai/gpt-4o-mini --tokens-in 0.15 --tokens-out 0.60
    """
    micros = {"tokens_in": to_micros(tokens_in), "tokens_out": to_micros(tokens_out), "unit": to_micros(unit)}
    printing.print_rows([await client.costs.set_price(provider, resource, **micros)], _PRICE_COLUMNS, output)


_GROUPS: tuple[ChargedBy, ...] = ("tenant", "run", "step", "item", "provider", "resource", "day")


def _parse_groups(names: list[str]) -> list[ChargedBy]:
    known = [group for group in _GROUPS if group in names]
    if unknown := set(names) - set(known):
        raise typer.BadParameter(f"--by takes {', '.join(_GROUPS)}, not {', '.join(sorted(unknown))}")
    return known


def to_micros(dollars: float) -> int:
    return round(dollars * _MICROS_PER_DOLLAR)
