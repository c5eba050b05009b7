"""`retoma webhooks ...` and `retoma endpoints ...`: manage webhook subscriptions and endpoints."""

from __future__ import annotations

from dataclasses import asdict
from typing import Annotated, Any

import typer

from retoma.cli import printing
from retoma.cli.command_setup import async_command, client_command, open_client, read_settings
from retoma.cli.options import ListFormat, ListOutput, OnlyTenant, limit_option
from retoma.cli.printing import Column
from retoma.client import Client
from retoma.define.webhook import ENDED, EVENTS
from retoma.outgoing import mask_query_values
from retoma.records import Endpoint

webhooks = typer.Typer(
    name="webhooks", no_args_is_help=True, help="Manage webhook subscriptions to the events of all runs."
)
endpoints = typer.Typer(name="endpoints", no_args_is_help=True, help="Manage webhook endpoints and their secrets.")
EndpointId = Annotated[int, typer.Argument(metavar="ENDPOINT", help="The endpoint's ID, from `retoma endpoints list`.")]

_SUBSCRIPTION_COLUMNS = [
    Column("id", "subscription"),
    Column("tenant"),
    Column("url", max_length=80),
    Column("events", formatter=", ".join),
]
_ENDPOINT_COLUMNS = [
    Column("id", "endpoint"),
    Column("tenant"),
    Column("url", max_length=80),
    Column("state", formatter=printing.format_state),
    *map(Column, ("due", "dead", "failures")),
    Column("disabled_because", "reason"),
]


@webhooks.command()
@async_command
async def subscribe(
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
    settings = read_settings()
    async with open_client(settings) as client:
        subscription = await client.webhooks.subscribe(url, event or [ENDED], tenant=tenant)
    if settings.webhook_secret is None:
        print(subscription.secret)
    else:
        printing.stderr().print("RETOMA_WEBHOOK_SECRET is set and signs the webhooks")
    printing.stderr().print(f"subscription {subscription.id}: {', '.join(subscription.events)}")


@webhooks.command("list")
@client_command
async def list_webhooks(
    client: Client,
    tenant: OnlyTenant = None,
    limit: Annotated[int, limit_option("subscriptions")] = 50,
    output: ListOutput = ListFormat.TABLE,
) -> None:
    """List subscriptions, newest first."""
    found = await client.webhooks.list_subscriptions(tenant=tenant, limit=limit)
    rows = [asdict(one) | {"url": mask_query_values(one.url)} for one in found]
    for row in rows:
        del row["secret"]
    printing.print_rows(rows, _SUBSCRIPTION_COLUMNS, output, "no subscriptions yet")


@webhooks.command()
@client_command
async def unsubscribe(
    client: Client,
    subscription: Annotated[
        int, typer.Argument(metavar="SUBSCRIPTION", help="The subscription's ID, from `retoma webhooks list`.")
    ],
) -> None:
    """Remove a subscription. Pending deliveries are still sent."""
    await client.webhooks.unsubscribe(subscription)
    printing.stdout().print(f"subscription {subscription} removed")


@endpoints.command("list")
@client_command
async def list_endpoints(
    client: Client,
    tenant: OnlyTenant = None,
    limit: Annotated[int, limit_option("endpoints")] = 50,
    output: ListOutput = ListFormat.TABLE,
) -> None:
    """List webhook endpoints, newest first."""
    found = await client.webhooks.list_endpoints(tenant=tenant, limit=limit)
    printing.print_rows([_to_endpoint_row(each) for each in found], _ENDPOINT_COLUMNS, output, "no endpoints yet")


@endpoints.command()
@client_command
async def enable(client: Client, endpoint: EndpointId) -> None:
    """Enable a disabled endpoint. To resend its dead deliveries, use `retoma deliveries redeliver --endpoint`."""
    await client.webhooks.enable_endpoint(endpoint)
    found = await client.webhooks.get_endpoint(endpoint)
    printing.stdout().print(f"endpoint {endpoint} enabled; dead deliveries: {found.dead}")


@endpoints.command("rotate-secret")
@async_command
async def rotate_secret(endpoint: EndpointId) -> None:
    """Create a new signing secret for the endpoint's tenant and host, and print it. It is shown only once.

    For 24 hours each webhook carries two signatures, so you can update the receiver in the meantime.
    """
    settings = read_settings()
    async with open_client(settings) as client:
        secret = await client.webhooks.rotate_secret(endpoint)
    print(secret)
    if settings.webhook_secret is not None:
        printing.stderr().print("RETOMA_WEBHOOK_SECRET is set and takes precedence over this secret")


def _to_endpoint_row(endpoint: Endpoint) -> dict[str, Any]:
    state = "disabled" if endpoint.disabled_at else "failing" if endpoint.failures else "ok"
    return {**asdict(endpoint), "url": mask_query_values(endpoint.url), "state": state}
