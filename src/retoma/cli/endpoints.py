"""`retoma endpoints ...`: manage webhook endpoints and their secrets."""

from __future__ import annotations

from dataclasses import asdict
from typing import Annotated, Any

import typer

from retoma.cli import printing
from retoma.cli.command_setup import open_client, read_settings, run_async
from retoma.cli.options import ListFormat, ListOutput
from retoma.cli.printing import Column
from retoma.outgoing import mask_query_values
from retoma.records import Endpoint

endpoints = typer.Typer(no_args_is_help=True, help="Manage webhook endpoints and their secrets.")
EndpointId = Annotated[int, typer.Argument(metavar="ENDPOINT", help="The endpoint's ID, from `retoma endpoints list`.")]

_COLUMNS = [
    Column("id", "endpoint"),
    Column("tenant"),
    Column("url", formatter=lambda url: printing.format_value(url, 80)),
    Column("state", formatter=printing.format_state),
    Column("due"),
    Column("dead"),
    Column("failures"),
    Column("disabled_because", "reason"),
]


@endpoints.command("list")
def list_endpoints(
    tenant: Annotated[str | None, typer.Option("--tenant", help="Only this tenant.")] = None,
    limit: Annotated[int, typer.Option("--limit", min=1, max=10_000, help="Maximum number of endpoints.")] = 50,
    output: ListOutput = ListFormat.TABLE,
) -> None:
    """List webhook endpoints, newest first."""
    run_async(_list(tenant, limit, output))


@endpoints.command()
def enable(endpoint: EndpointId) -> None:
    """Enable a disabled endpoint. To resend its dead deliveries, use `retoma deliveries redrive --endpoint`."""
    run_async(_enable_endpoint(endpoint))


@endpoints.command()
def rotate(endpoint: EndpointId) -> None:
    """Create a new signing secret for the endpoint's tenant and host, and print it. It is shown only once.

    For 24 hours each webhook carries two signatures, so you can update the receiver in the meantime.
    """
    run_async(_rotate_secret(endpoint))


async def _list(tenant: str | None, limit: int, output: ListFormat) -> None:
    async with open_client(read_settings()) as client:
        found = await client.webhooks.list_endpoints(tenant=tenant, limit=limit)
    printing.print_rows([_to_row(each) for each in found], _COLUMNS, output, "no endpoints yet")


async def _enable_endpoint(endpoint: int) -> None:
    async with open_client(read_settings()) as client:
        await client.webhooks.enable_endpoint(endpoint)
        found = await client.webhooks.get_endpoint(endpoint)
    printing.stdout().print(f"endpoint {endpoint} enabled; dead deliveries: {found.dead}")


async def _rotate_secret(endpoint: int) -> None:
    settings = read_settings()
    async with open_client(settings) as client:
        secret = await client.webhooks.rotate_secret(endpoint)
    print(secret)
    if settings.webhook_secret is not None:
        printing.stderr().print("RETOMA_WEBHOOK_SECRET is set and takes precedence over this secret")


def _to_row(endpoint: Endpoint) -> dict[str, Any]:
    state = "disabled" if endpoint.disabled_at else "failing" if endpoint.failures else "ok"
    return {**asdict(endpoint), "url": mask_query_values(endpoint.url), "state": state}
