"""`retoma deliveries ...`: list webhook deliveries and redrive dead ones."""

from __future__ import annotations

from dataclasses import asdict
from datetime import datetime
from typing import Annotated, Any
from uuid import UUID

import typer

from retoma.cli import printing
from retoma.cli.command_setup import open_client, read_settings, run_async
from retoma.cli.options import DetailFormat, DetailOutput, ListFormat, ListOutput
from retoma.cli.printing import Column
from retoma.cli.runs import find_run
from retoma.client import Client
from retoma.errors import NotFound
from retoma.outgoing import mask_query_values
from retoma.records import Delivery
from retoma.states import DeliveryState
from retoma.terminal import escape_text

deliveries = typer.Typer(no_args_is_help=True, help="List webhook deliveries and redrive dead ones.")
DeliveryId = Annotated[str, typer.Argument(metavar="DELIVERY", help="The delivery's ID or a unique prefix of it.")]

_COLUMNS = [
    Column("id", "delivery"),
    Column("event"),
    Column("run"),
    Column("run_title", "title", lambda title: printing.format_value(title, 40)),
    Column("state", formatter=printing.format_state),
    Column("attempt", "attempts"),
    Column("next_at", "next", printing.format_time),
    Column("status"),
    Column("url", formatter=lambda url: printing.format_value(url, 60)),
    Column("error", formatter=lambda error: printing.format_value(error, 80)),
]
_ATTEMPT_COLUMNS = [
    Column("attempt"),
    Column("at", formatter=printing.format_time),
    Column("took", formatter=printing.format_duration),
    Column("status"),
    Column("error", formatter=lambda error: printing.format_value(error, 100)),
    Column("answer", "response", lambda answer: printing.format_value(answer, 100)),
]


@deliveries.command("list")
def list_deliveries(
    state: Annotated[
        list[DeliveryState] | None,
        typer.Option("--state", metavar="STATE", help="Only deliveries in this state; repeatable."),
    ] = None,
    run: Annotated[str | None, typer.Option("--run", help="Only deliveries of this run.")] = None,
    endpoint: Annotated[int | None, typer.Option("--endpoint", help="Only deliveries to this endpoint.")] = None,
    tenant: Annotated[str | None, typer.Option("--tenant", help="Only this tenant.")] = None,
    limit: Annotated[int, typer.Option("--limit", min=1, max=10_000, help="Maximum number of deliveries.")] = 20,
    before: Annotated[str | None, typer.Option("--before", help="Only deliveries older than this one.")] = None,
    output: ListOutput = ListFormat.TABLE,
) -> None:
    """List deliveries, newest first.

    \b
    Examples:
      retoma deliveries list --state dead
      retoma deliveries list --run 0199a3 -o json
    """
    run_async(_list(state, run, endpoint, tenant, limit, before, output))


@deliveries.command()
def show(delivery: DeliveryId, output: DetailOutput = DetailFormat.TABLE) -> None:
    """Show a delivery with its body and attempts."""
    run_async(_show(delivery, output))


@deliveries.command()
def redrive(
    delivery: Annotated[str | None, typer.Argument(metavar="DELIVERY", help="The dead delivery to redrive.")] = None,
    endpoint: Annotated[int | None, typer.Option("--endpoint", help="All dead deliveries to this endpoint.")] = None,
    url: Annotated[str | None, typer.Option("--url", help="All dead deliveries to this URL.")] = None,
    tenant: Annotated[str | None, typer.Option("--tenant", help="Only this tenant.")] = None,
    since: Annotated[
        datetime | None, typer.Option("--since", help="Only deliveries created at or after this time.")
    ] = None,
    until: Annotated[datetime | None, typer.Option("--until", help="Only deliveries created before this time.")] = None,
) -> None:
    """Redrive dead deliveries: send them again with the same ID and body.

    \b
    Examples:
      retoma deliveries redrive 5f1c
      retoma deliveries redrive --endpoint 3 --since 2026-11-15
    """
    if (delivery is None) == (endpoint is None and url is None and since is None):
        raise typer.BadParameter("name a DELIVERY, or use --endpoint, --url or --since")
    run_async(_redrive(delivery, endpoint, url, tenant, since, until))


async def _list(
    states: list[DeliveryState] | None,
    run: str | None,
    endpoint: int | None,
    tenant: str | None,
    limit: int,
    before: str | None,
    output: ListFormat,
) -> None:
    async with open_client(read_settings()) as client:
        found = await client.webhooks.list_deliveries(
            states=states or None,
            run=None if run is None else await find_run(client, run),
            endpoint=endpoint,
            tenant=tenant,
            limit=limit,
            before=None if before is None else await _find_delivery(client, before),
        )
    printing.print_rows([_to_row(each) for each in found], _COLUMNS, output, "no matching deliveries")
    if output is ListFormat.TABLE and len(found) == limit:
        printing.stderr().print(f"for older deliveries: --before {found[-1].id}")


async def _show(text: str, output: DetailFormat) -> None:
    async with open_client(read_settings()) as client:
        found = await client.webhooks.get_delivery(await _find_delivery(client, text))
    if output is DetailFormat.JSON:
        print(printing.to_json(_mask_url(found), indent=2))
        return
    printing.stdout().print(printing.make_table([_to_row(found)], _COLUMNS))
    if found.attempts:
        printing.stdout().print(printing.make_table([asdict(attempt) for attempt in found.attempts], _ATTEMPT_COLUMNS))
    printing.stdout().print(
        escape_text(found.body or "no body yet: it is created at the first attempt"), soft_wrap=True
    )


async def _redrive(
    text: str | None,
    endpoint: int | None,
    url: str | None,
    tenant: str | None,
    since: datetime | None,
    until: datetime | None,
) -> None:
    async with open_client(read_settings()) as client:
        if text is not None:
            await client.webhooks.redrive(await _find_delivery(client, text), tenant=tenant)
            count = 1
        else:
            count = await client.webhooks.redrive_all(
                tenant=tenant, endpoint=endpoint, url=url, from_at=_to_local(since), to_at=_to_local(until)
            )
    printing.stdout().print(f"redriven: {count}")


async def _find_delivery(client: Client, text: str) -> UUID:
    found = await client.webhooks.find_delivery(text, limit=4)
    if not found:
        raise NotFound(f"delivery {escape_text(text)!r} not found")
    if len(found) > 1:
        raise typer.BadParameter(
            f"{text!r} matches several deliveries: {', '.join(map(str, found[:3]))}; use a longer prefix"
        )
    return found[0]


def _to_row(delivery: Delivery) -> dict[str, Any]:
    return {name: value for name, value in _mask_url(delivery).items() if name not in ("attempts", "body")}


def _mask_url(delivery: Delivery) -> dict[str, Any]:
    return asdict(delivery) | {"url": mask_query_values(delivery.url)}


def _to_local(at: datetime | None) -> datetime | None:
    return None if at is None else at.astimezone()
