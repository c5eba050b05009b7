"""`retoma deliveries ...`: list webhook deliveries and redeliver dead ones."""

from __future__ import annotations

from dataclasses import asdict
from typing import Annotated, Any

import typer

from retoma.cli import printing
from retoma.cli.command_setup import async_command, client_command, open_client, read_settings
from retoma.cli.inputs import read_past
from retoma.cli.lookups import find_delivery, find_run
from retoma.cli.options import (
    DetailFormat,
    DetailOutput,
    ListFormat,
    ListOutput,
    OnlyTenant,
    Since,
    Until,
    limit_option,
    state_option,
)
from retoma.cli.printing import Column
from retoma.client import Client
from retoma.outgoing import mask_query_values
from retoma.records import Delivery
from retoma.states import DeliveryState
from retoma.terminal import escape_text

deliveries = typer.Typer(
    name="deliveries", no_args_is_help=True, help="List webhook deliveries and redeliver dead ones."
)
DeliveryId = Annotated[str, typer.Argument(metavar="DELIVERY", help="The delivery's ID or a unique prefix of it.")]

_COLUMNS = [
    Column("id", "delivery"),
    Column("event"),
    Column("run"),
    Column("run_title", "title", max_length=40),
    Column("state", formatter=printing.format_state),
    Column("attempt", "attempts"),
    Column("next_at", "next", printing.format_time),
    Column("status"),
    Column("url", max_length=60),
    Column("error", max_length=80),
]
_ATTEMPT_COLUMNS = [
    Column("attempt"),
    Column("at", formatter=printing.format_time),
    Column("seconds", "duration", formatter=printing.format_duration),
    Column("status"),
    Column("error", max_length=100),
    Column("answer", "response", max_length=100),
]


@deliveries.command("list")
@client_command
async def list_deliveries(
    client: Client,
    state: Annotated[list[DeliveryState] | None, state_option("deliveries")] = None,
    run: Annotated[str | None, typer.Option("--run", help="Only deliveries of this run.")] = None,
    endpoint: Annotated[int | None, typer.Option("--endpoint", help="Only deliveries to this endpoint.")] = None,
    tenant: OnlyTenant = None,
    limit: Annotated[int, limit_option("deliveries")] = 20,
    before: Annotated[str | None, typer.Option("--before", help="Only deliveries older than this one.")] = None,
    output: ListOutput = ListFormat.TABLE,
) -> None:
    """List deliveries, newest first.

    \b
    Examples:
      retoma deliveries list --state dead
      retoma deliveries list --run 0199a3 -o json
    """
    found = await client.webhooks.list_deliveries(
        states=state or None,
        run=None if run is None else await find_run(client, run),
        endpoint=endpoint,
        tenant=tenant,
        limit=limit,
        before=None if before is None else await find_delivery(client, before),
    )
    older = f"for older deliveries: --before {found[-1].id}" if len(found) == limit else ""
    rows = [_to_row(each) for each in found]
    printing.print_rows(rows, _COLUMNS, output, "no matching deliveries", next_page=older)


@deliveries.command()
@client_command
async def show(client: Client, delivery: DeliveryId, output: DetailOutput = DetailFormat.TABLE) -> None:
    """Show a delivery with its body and attempts."""
    found = await client.webhooks.get_delivery(await find_delivery(client, delivery))
    if output is DetailFormat.JSON:
        print(printing.to_json(_mask_url(found), indent=2))
        return
    console = printing.stdout()
    console.print(printing.make_table([_to_row(found)], _COLUMNS))
    if found.attempts:
        console.print(printing.make_table([asdict(attempt) for attempt in found.attempts], _ATTEMPT_COLUMNS))
    console.print(escape_text(found.body or "no body yet: it is created at the first attempt"), soft_wrap=True)


@deliveries.command()
@async_command
async def redeliver(
    delivery: Annotated[str | None, typer.Argument(metavar="DELIVERY", help="The dead delivery to redeliver.")] = None,
    endpoint: Annotated[int | None, typer.Option("--endpoint", help="All dead deliveries to this endpoint.")] = None,
    url: Annotated[str | None, typer.Option("--url", help="All dead deliveries to this URL.")] = None,
    tenant: OnlyTenant = None,
    since: Since = None,
    until: Until = None,
) -> None:
    """Redeliver dead deliveries: send them again with the same ID and body.

    \b
    Examples:
      retoma deliveries redeliver 5f1c
      retoma deliveries redeliver --endpoint 3 --since 2026-11-15
    """
    if (delivery is None) == (endpoint is None and url is None and since is None):
        raise typer.BadParameter("name a DELIVERY, or use --endpoint, --url or --since")
    async with open_client(read_settings()) as client:
        if delivery is not None:
            await client.webhooks.redeliver(await find_delivery(client, delivery), tenant=tenant)
            count = 1
        else:
            now = await client.now()
            count = await client.webhooks.redeliver_all(
                tenant=tenant,
                endpoint=endpoint,
                url=url,
                since=read_past("--since", since, now),
                until=read_past("--until", until, now),
            )
    printing.stdout().print(f"redelivered: {count}")


def _to_row(delivery: Delivery) -> dict[str, Any]:
    return {name: value for name, value in _mask_url(delivery).items() if name not in ("attempts", "body")}


def _mask_url(delivery: Delivery) -> dict[str, Any]:
    return asdict(delivery) | {"url": mask_query_values(delivery.url)}
