"""`retoma webhooks ...`: URLs that have subscribed to events of all runs."""

from __future__ import annotations

from dataclasses import asdict
from typing import Annotated

import typer

from retoma.cli import output
from retoma.cli.options import Format, Listing
from retoma.cli.output import Column
from retoma.cli.session import in_loop, opened_client, read_settings
from retoma.define.webhook import ENDED, EVENTS
from retoma.outgoing import without_values

webhooks = typer.Typer(no_args_is_help=True, help="Subscribe URLs to events of all runs.")

_COLUMNS = [
    Column("id", "subscription"),
    Column("tenant"),
    Column("url", shown=lambda url: output.value(url, 80)),
    Column("events", shown=", ".join),
]


@webhooks.command()
def subscribe(
    url: Annotated[str, typer.Argument(help="Where events go.")],
    event: Annotated[
        list[str] | None,
        typer.Option("--event", help=f"One of {', '.join(EVENTS)}; may be repeated. Unset: {ENDED}."),
    ] = None,
    tenant: Annotated[str | None, typer.Option("--tenant", help="Only runs of this tenant; unset: all.")] = None,
) -> None:
    """Send events of all runs to a URL, and print the secret that signs them. It is shown only now.

    \b
    retoma webhooks subscribe https://n8n.example.com/webhook/reviews --event review.opened --event run.stuck
    """
    in_loop(_subscribe(url, event or [ENDED], tenant))


@webhooks.command("list")
def list_webhooks(
    tenant: Annotated[str | None, typer.Option("--tenant", help="Only this tenant's.")] = None,
    limit: Annotated[int, typer.Option("--limit", min=1, max=10_000, help="At most so many.")] = 50,
    how: Listing = Format.TABLE,
) -> None:
    """List subscriptions, newest first."""
    in_loop(_list(tenant, limit, how))


@webhooks.command()
def remove(
    subscription: Annotated[int, typer.Argument(metavar="SUBSCRIPTION", help="Its number in `retoma webhooks list`.")],
) -> None:
    """Remove a subscription. Events that are due to it already are still sent."""
    in_loop(_remove(subscription))


async def _subscribe(url: str, events: list[str], tenant: str | None) -> None:
    settings = read_settings()
    async with opened_client(settings) as client:
        made = await client.subscribe(url, events, tenant=tenant)
    if settings.webhook_secret is None:
        print(made.secret)
    else:
        output.err().print("RETOMA_WEBHOOK_SECRET is set, and signs what is sent")
    output.err().print(f"subscription {made.id}: {', '.join(made.events)}")


async def _list(tenant: str | None, limit: int, how: Format) -> None:
    async with opened_client(read_settings()) as client:
        found = await client.subscriptions(tenant=tenant, limit=limit)
    rows = [asdict(one) | {"url": without_values(one.url)} for one in found]
    for row in rows:
        del row["secret"]
    output.emit(rows, _COLUMNS, how, "nobody has subscribed yet")


async def _remove(subscription: int) -> None:
    async with opened_client(read_settings()) as client:
        await client.unsubscribe(subscription)
    output.out().print(f"subscription {subscription} is removed")
