"""`retoma charges` and `retoma prices ...`: the cost of runs and the prices of providers."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Annotated

import typer

from retoma.cli import printing
from retoma.cli.command_setup import open_client, read_settings, run_async
from retoma.cli.options import ListFormat, ListOutput
from retoma.cli.printing import Column
from retoma.cli.runs import find_run
from retoma.client import ChargedBy

prices = typer.Typer(no_args_is_help=True, help="Manage the prices of providers.")
_MICROS_PER_DOLLAR = 1_000_000


def format_dollars(micros: int) -> str:
    return f"${micros / _MICROS_PER_DOLLAR:,.6f}"


_COLUMNS = [
    *[Column(name) for name in ("tenant", "run", "step", "item", "provider", "what")],
    Column("charges"),
    Column("tokens_in", "tokens in"),
    Column("tokens_out", "tokens out"),
    Column("units"),
    Column("micros", "US$", format_dollars),
    Column("unpriced", "without price"),
]
_PRICE_COLUMNS = [
    Column("provider"),
    Column("what"),
    Column("version"),
    Column("since", formatter=printing.format_time),
    Column("tokens_in", "per million tokens in", format_dollars),
    Column("tokens_out", "per million tokens out", format_dollars),
    Column("unit", "per unit", format_dollars),
]


def charges(
    run: Annotated[
        str | None, typer.Argument(metavar="RUN", help="Only this run: its ID or a unique prefix of it.")
    ] = None,
    by: Annotated[
        list[str] | None,
        typer.Option("--by", metavar="FIELD", help="Group by tenant, run, step, item, provider or what; repeatable."),
    ] = None,
    tenant: Annotated[str | None, typer.Option("--tenant", help="Only this tenant.")] = None,
    since: Annotated[datetime | None, typer.Option("--since", help="Only charges at or after this time (UTC).")] = None,
    until: Annotated[datetime | None, typer.Option("--until", help="Only charges before this time (UTC).")] = None,
    limit: Annotated[int, typer.Option("--limit", min=1, max=10_000, help="Maximum number of totals.")] = 100,
    output: ListOutput = ListFormat.TABLE,
) -> None:
    """Show costs, including those of failed attempts.

    Groups by step for a run, otherwise by tenant.

    \b
    Examples:
      retoma charges 0199a3 --by step --by item
      retoma charges --by provider --by what --since 2026-11-01
    """
    run_async(
        _show_charges(run, _parse_groups(by or (["step"] if run else ["tenant"])), tenant, since, until, limit, output)
    )


@prices.command("list")
def list_prices(output: ListOutput = ListFormat.TABLE) -> None:
    """List every version of every price."""
    run_async(_list_prices(output))


@prices.command("set")
def set_price(
    provider: Annotated[str, typer.Argument(metavar="PROVIDER", help="The provider, as named in the steps.")],
    what: Annotated[
        str, typer.Argument(metavar="WHAT", help="What is charged, such as a model, a voice or a machine type.")
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
    run_async(_set_price(provider, what, _to_micros(tokens_in), _to_micros(tokens_out), _to_micros(unit), output))


async def _show_charges(
    text: str | None,
    by: list[ChargedBy],
    tenant: str | None,
    since: datetime | None,
    until: datetime | None,
    limit: int,
    output: ListFormat,
) -> None:
    async with open_client(read_settings()) as client:
        run = None if text is None else await find_run(client, text)
        found = await client.costs.get_totals(
            by=by, run=run, tenant=tenant, since=_to_utc(since), until=_to_utc(until), limit=limit
        )
    columns = [column for column in _COLUMNS if column.key not in _GROUPS or column.key in by]
    printing.print_rows([vars(total) for total in found], columns, output, "no charges")


async def _list_prices(output: ListFormat) -> None:
    async with open_client(read_settings()) as client:
        found = await client.costs.list_prices()
    printing.print_rows(
        [vars(price) for price in found], _PRICE_COLUMNS, output, "no prices; add one with `retoma prices set`"
    )


async def _set_price(provider: str, what: str, tokens_in: int, tokens_out: int, unit: int, output: ListFormat) -> None:
    async with open_client(read_settings()) as client:
        price = await client.costs.set_price(provider, what, tokens_in=tokens_in, tokens_out=tokens_out, unit=unit)
    printing.print_rows([vars(price)], _PRICE_COLUMNS, output, "")


_GROUPS: tuple[ChargedBy, ...] = ("tenant", "run", "step", "item", "provider", "what")


def _parse_groups(names: list[str]) -> list[ChargedBy]:
    known = [group for group in _GROUPS if group in names]
    if unknown := set(names) - set(known):
        raise typer.BadParameter(f"--by takes {', '.join(_GROUPS)}, not {', '.join(sorted(unknown))}")
    return known


def _to_micros(dollars: float) -> int:
    return round(dollars * _MICROS_PER_DOLLAR)


def _to_utc(at: datetime | None) -> datetime | None:
    return None if at is None else at.replace(tzinfo=UTC)
