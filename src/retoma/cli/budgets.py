"""`retoma budgets ...`: what runs and tenants may spend, and what they have spent of it."""

from __future__ import annotations

from datetime import datetime
from typing import Annotated, Any

import typer

from retoma.cli import printing
from retoma.cli.charges import format_dollars, to_micros
from retoma.cli.command_setup import client_command
from retoma.cli.options import BY, By, ListFormat, ListOutput, OnlyTenant
from retoma.cli.printing import Column
from retoma.client import Client
from retoma.records import BudgetAction, BudgetPeriod, BudgetStatus

budgets = typer.Typer(name="budgets", no_args_is_help=True, help="Manage budgets: what runs and tenants may spend.")

TenantArgument = Annotated[str, typer.Argument(metavar="TENANT", help="The tenant.")]
PeriodArgument = Annotated[BudgetPeriod, typer.Argument(metavar="PERIOD", help="run, day or month.")]
PipelineOption = Annotated[
    str | None, typer.Option("--pipeline", help="Only runs of this pipeline. Default: all of the tenant together.")
]


def _format_optional(micros: int | None) -> str:
    return "" if micros is None else format_dollars(micros)


_COLUMNS = [
    *map(Column, ("tenant", "pipeline", "period")),
    Column("micros", "limit", format_dollars),
    Column("spent", formatter=_format_optional),
    Column("reserved", formatter=_format_optional),
    Column("share", "used", lambda share: "" if share is None else f"{share:.0%}"),
    Column("action"),
    Column("warn_at", "warns at", lambda share: f"{share:.0%}"),
    Column("waiting"),
    Column("ends_at", "until", printing.format_time),
]
_HISTORY_COLUMNS = [
    Column("starts_at", "since", printing.format_time),
    Column("spent", formatter=format_dollars),
]
_MONEY_COLUMNS = [
    Column("tenant"),
    Column("time_zone", "time zone"),
    *map(Column, ("currency", "rate")),
    Column("rate_date", "rate of"),
]


@budgets.command("list")
@client_command
async def list_budgets(client: Client, tenant: OnlyTenant = None, output: ListOutput = ListFormat.TABLE) -> None:
    """List budgets, and what is used of them now.

    \b
    Examples:
      retoma budgets list
      retoma budgets list --tenant finance -o json
    """
    found = await client.budgets.list_statuses(tenant=tenant)
    printing.print_rows(
        [_flatten(each) for each in found], _COLUMNS, output, "no budgets; add one with `retoma budgets set`"
    )


@budgets.command("set")
@client_command
async def set_budget(
    client: Client,
    tenant: TenantArgument,
    period: PeriodArgument,
    limit: Annotated[float, typer.Argument(metavar="LIMIT", min=0, help="US$.")],
    pipeline: PipelineOption = None,
    action: Annotated[
        BudgetAction | None,
        typer.Option("--action", help="notify only tells people; review also asks before the budget is passed."),
    ] = None,
    warn_at: Annotated[
        float | None, typer.Option("--warn-at", min=0.01, max=1, help="Warn at this share. Default: 0.8.")
    ] = None,
    by: By = BY,
    output: ListOutput = ListFormat.TABLE,
) -> None:
    """Create a budget, or change it. Jobs that wait because of it continue if it allows them now.

    \b
    Examples:
      retoma budgets set finance month 50
      retoma budgets set finance day 5 --pipeline film --action notify
    """
    await client.budgets.set(tenant, period, to_micros(limit), pipeline=pipeline, action=action, warn_at=warn_at, by=by)
    status = await client.budgets.get_status(tenant, period, pipeline=pipeline)
    printing.print_rows([_flatten(status)], _COLUMNS, output)


@budgets.command("remove")
@client_command
async def remove_budget(
    client: Client,
    tenant: TenantArgument,
    period: PeriodArgument,
    pipeline: PipelineOption = None,
    output: ListOutput = ListFormat.TABLE,
) -> None:
    """Remove a budget, and show what was used of it. Jobs that wait because of it continue."""
    status = await client.budgets.get_status(tenant, period, pipeline=pipeline)
    await client.budgets.remove(tenant, period, pipeline=pipeline)
    printing.print_rows([_flatten(status)], _COLUMNS, output)


@budgets.command("show")
@client_command
async def show_budget(
    client: Client,
    tenant: TenantArgument,
    period: PeriodArgument,
    pipeline: PipelineOption = None,
    periods: Annotated[int, typer.Option("--periods", min=1, max=400, help="How many periods.")] = 12,
    output: ListOutput = ListFormat.TABLE,
) -> None:
    """Show what was spent in the current period of a budget, and in those before it."""
    found = await client.budgets.list_history(tenant, period, pipeline=pipeline, periods=periods)
    printing.print_rows(found, _HISTORY_COLUMNS, output, "a budget per run has no periods")


@budgets.command("currency")
@client_command
async def set_currency(
    client: Client,
    tenant: TenantArgument,
    currency: Annotated[str | None, typer.Option("--currency", help="Such as BRL. Default: US dollars only.")] = None,
    rate: Annotated[
        float | None, typer.Option("--rate", min=0, help="How many units of the currency a US dollar costs.")
    ] = None,
    rate_date: Annotated[
        datetime | None, typer.Option("--rate-date", formats=["%Y-%m-%d"], help="The date of the rate.")
    ] = None,
    time_zone: Annotated[
        str, typer.Option("--time-zone", help="In which days and months begin, such as America/Sao_Paulo.")
    ] = "UTC",
    output: ListOutput = ListFormat.TABLE,
) -> None:
    """Set the currency in which a tenant's amounts are also shown, and its time zone.

    \b
    Example:
      retoma budgets currency finance --currency BRL --rate 5.40 --rate-date 2026-11-02 --time-zone America/Sao_Paulo
    """
    money = await client.budgets.set_money(
        tenant,
        time_zone=time_zone,
        currency=currency,
        rate=rate,
        rate_date=None if rate_date is None else rate_date.date(),
    )
    printing.print_rows([money], _MONEY_COLUMNS, output)


def _flatten(status: BudgetStatus) -> dict[str, Any]:
    """Return the budget and what is used of it as one row."""
    used = {name: value for name, value in vars(status).items() if name != "budget"}
    return {**vars(status.budget), **used, "share": status.share, "forecast": status.forecast}
