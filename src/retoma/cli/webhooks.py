"""`retoma webhooks ...`: manage webhook subscriptions to the events of all runs."""

from __future__ import annotations

from dataclasses import asdict
from typing import Annotated

import typer

from retoma.cli import printing
from retoma.cli.command_setup import open_client, read_settings, run_async
from retoma.cli.options import ListFormat, ListOutput
from retoma.cli.printing import Column
from retoma.define.webhook import ENDED, EVENTS
from retoma.outgoing import mask_query_values

webhooks = typer.Typer(no_args_is_help=True, help="Manage webhook subscriptions to the events of all runs.")

_COLUMNS = [
    Column("id", "subscription"),
    Column("tenant"),
    Column("url", formatter=lambda url: printing.format_value(url, 80)),
    Column("events", formatter=", ".join),
]


@webhooks.command()
def subscribe(
    url: Annotated[str, typer.Argument(metavar="URL", help="The URL that receives the events.")],
    event: Annotated[
        list[str] | None,
        typer.Option("--event", help=f"One of {', '.join(EVENTS)}; repeatable. Default: {ENDED}."),
    ] = None,
    tenant: Annotated[
        str | None, typer.Option("--tenant", help="Only runs of this tenant. Default: all tenants.")
    ] = None,
) -> None:
    """Subscribe a URL to the events of all runs, and print the signing secret. It is shown only once.

    \b
    Example:
      retoma webhooks subscribe https://n8n.example.com/webhook/reviews --event review.opened --event run.stuck
    """
    run_async(_subscribe(url, event or [ENDED], tenant))


@webhooks.command("list")
def list_webhooks(
    tenant: Annotated[str | None, typer.Option("--tenant", help="Only this tenant.")] = None,
    limit: Annotated[int, typer.Option("--limit", min=1, max=10_000, help="Maximum number of subscriptions.")] = 50,
    output: ListOutput = ListFormat.TABLE,
) -> None:
    """List subscriptions, newest first."""
    run_async(_list(tenant, limit, output))


@webhooks.command()
def remove(
    subscription: Annotated[
        int, typer.Argument(metavar="SUBSCRIPTION", help="The subscription's ID, from `retoma webhooks list`.")
    ],
) -> None:
    """Remove a subscription. Pending deliveries are still sent."""
    run_async(_remove(subscription))


async def _subscribe(url: str, events: list[str], tenant: str | None) -> None:
    settings = read_settings()
    async with open_client(settings) as client:
        subscription = await client.webhooks.subscribe(url, events, tenant=tenant)
    if settings.webhook_secret is None:
        print(subscription.secret)
    else:
        printing.stderr().print("RETOMA_WEBHOOK_SECRET is set and signs the webhooks")
    printing.stderr().print(f"subscription {subscription.id}: {', '.join(subscription.events)}")


async def _list(tenant: str | None, limit: int, output: ListFormat) -> None:
    async with open_client(read_settings()) as client:
        found = await client.webhooks.list_subscriptions(tenant=tenant, limit=limit)
    rows = [asdict(one) | {"url": mask_query_values(one.url)} for one in found]
    for row in rows:
        del row["secret"]
    printing.print_rows(rows, _COLUMNS, output, "no subscriptions yet")


async def _remove(subscription: int) -> None:
    async with open_client(read_settings()) as client:
        await client.webhooks.unsubscribe(subscription)
    printing.stdout().print(f"subscription {subscription} removed")
