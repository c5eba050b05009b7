"""`retoma charges` and `retoma prices ...`: what work costs."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Annotated

import typer

from retoma.cli import output
from retoma.cli.options import Format, Listing
from retoma.cli.output import Column
from retoma.cli.runs import found_run
from retoma.cli.session import in_loop, opened_client, read_settings
from retoma.client import ChargedBy

prices = typer.Typer(no_args_is_help=True, help="What providers take.")
_MICROS = 1_000_000


def dollars(micros: int) -> str:
    return f"${micros / _MICROS:,.6f}"


_COLUMNS = [
    *[Column(name) for name in ("tenant", "run", "step", "item", "provider", "what")],
    Column("charges"),
    Column("tokens_in", "tokens in"),
    Column("tokens_out", "tokens out"),
    Column("units"),
    Column("micros", "US$", dollars),
    Column("unpriced", "without price"),
]
_PRICE_COLUMNS = [
    Column("provider"),
    Column("what"),
    Column("version"),
    Column("since", shown=output.moment),
    Column("tokens_in", "a million tokens in", dollars),
    Column("tokens_out", "a million tokens out", dollars),
    Column("unit", "a unit", dollars),
]


def charges(
    run: Annotated[
        str | None, typer.Argument(metavar="RUN", help="Only of this run, or the beginning of its id.")
    ] = None,
    by: Annotated[
        list[str] | None,
        typer.Option("--by", metavar="WHAT", help="tenant, run, step, item, provider or what; may be repeated."),
    ] = None,
    tenant: Annotated[str | None, typer.Option("--tenant", help="Only of this tenant.")] = None,
    since: Annotated[datetime | None, typer.Option("--since", help="Only from then on, in UTC.")] = None,
    until: Annotated[datetime | None, typer.Option("--until", help="Only before then, in UTC.")] = None,
    limit: Annotated[int, typer.Option("--limit", min=1, max=10_000, help="At most so many sums.")] = 100,
    how: Listing = Format.TABLE,
) -> None:
    """What work has cost, failed attempts too: of a run by step, otherwise by tenant.

    \b
    retoma charges 0199a3 --by step --by item
    retoma charges --by provider --by what --since 2026-11-01
    """
    in_loop(_charges(run, _known(by or (["step"] if run else ["tenant"])), tenant, since, until, limit, how))


@prices.command("list")
def list_prices(how: Listing = Format.TABLE) -> None:
    """List every version of every price."""
    in_loop(_list_prices(how))


@prices.command("set")
def set_price(
    provider: Annotated[str, typer.Argument(metavar="PROVIDER", help="As the steps name it.")],
    what: Annotated[str, typer.Argument(metavar="WHAT", help="A model, a voice, a machine.")],
    tokens_in: Annotated[float, typer.Option("--in", min=0, help="US$ for a million tokens in.")] = 0,
    tokens_out: Annotated[float, typer.Option("--out", min=0, help="US$ for a million tokens out.")] = 0,
    unit: Annotated[float, typer.Option("--unit", min=0, help="US$ for one unit.")] = 0,
    how: Listing = Format.TABLE,
) -> None:
    """Set what a provider takes from now on. What was charged before stays as it is.

    \b
    retoma prices set openrouter openai/gpt-4o-mini --in 0.15 --out 0.60
    """
    in_loop(_set_price(provider, what, _micros(tokens_in), _micros(tokens_out), _micros(unit), how))


async def _charges(
    text: str | None,
    by: list[ChargedBy],
    tenant: str | None,
    since: datetime | None,
    until: datetime | None,
    limit: int,
    how: Format,
) -> None:
    async with opened_client(read_settings()) as client:
        run = None if text is None else await found_run(client, text)
        found = await client.charge_totals(
            by=by, run=run, tenant=tenant, since=_in_utc(since), until=_in_utc(until), limit=limit
        )
    shown = [column for column in _COLUMNS if column.key not in _GROUPS or column.key in by]
    output.emit([vars(total) for total in found], shown, how, "nothing was charged")


async def _list_prices(how: Format) -> None:
    async with opened_client(read_settings()) as client:
        found = await client.prices()
    output.emit([vars(price) for price in found], _PRICE_COLUMNS, how, "no prices: `retoma prices set` makes one")


async def _set_price(provider: str, what: str, tokens_in: int, tokens_out: int, unit: int, how: Format) -> None:
    async with opened_client(read_settings()) as client:
        made = await client.set_price(provider, what, tokens_in=tokens_in, tokens_out=tokens_out, unit=unit)
    output.emit([vars(made)], _PRICE_COLUMNS, how, "")


_GROUPS: tuple[ChargedBy, ...] = ("tenant", "run", "step", "item", "provider", "what")


def _known(given: list[str]) -> list[ChargedBy]:
    known = [group for group in _GROUPS if group in given]
    if unknown := set(given) - set(known):
        raise typer.BadParameter(f"--by takes {', '.join(_GROUPS)}; given: {', '.join(sorted(unknown))}")
    return known


def _micros(dollars: float) -> int:
    return round(dollars * _MICROS)


def _in_utc(given: datetime | None) -> datetime | None:
    return None if given is None else given.replace(tzinfo=UTC)
