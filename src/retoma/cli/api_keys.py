"""`retoma keys ...`: manage API keys."""

from __future__ import annotations

from typing import Annotated

import typer

from retoma.cli import printing
from retoma.cli.command_setup import async_command, client_command, open_client, read_settings
from retoma.cli.inputs import read_duration
from retoma.cli.messages import gettext
from retoma.cli.options import DetailFormat, DetailOutput, ListFormat, ListOutput
from retoma.cli.printing import Column, Row
from retoma.client import Client
from retoma.records import ApiKey, NewApiKey, Scope

keys = typer.Typer(name="keys", no_args_is_help=True, help="Manage API keys.")
KeyId = Annotated[int, typer.Argument(metavar="KEY", help="The key's ID, from `retoma keys list`.")]

_COLUMNS = [
    Column("id", "key"),
    Column("name"),
    Column("begins", "prefix"),
    Column("tenant", formatter=lambda tenant: tenant or "all"),
    Column("scopes", formatter=" ".join),
    Column("created_at", "created", printing.format_time),
    Column("expires_at", "expires", printing.format_time),
    Column("used_at", "last used", printing.format_time),
    Column("revoked_at", "revoked", printing.format_time),
]


@keys.command()
@async_command
async def create(
    name: Annotated[
        str,
        typer.Argument(
            metavar="NAME", help="The name of its user. Two keys with the same name can be valid at a time."
        ),
    ],
    scope: Annotated[
        list[Scope] | None,
        typer.Option("--scope", help="A scope of the key; repeatable. Default: runs:read and runs:write."),
    ] = None,
    tenant: Annotated[
        str | None, typer.Option("--tenant", help="Limit the key to this tenant. Default: all tenants.")
    ] = None,
    expires: Annotated[
        str | None,
        typer.Option("--expires", metavar="DURATION", help="Expire after this time, such as 90d (s, m, h, d)."),
    ] = None,
    output: DetailOutput = DetailFormat.TABLE,
) -> None:
    """Create an API key and print it. It is shown only once.

    \b
    Examples:
      retoma keys create n8n --tenant my-channel
      retoma keys create prometheus --scope metrics:read --expires 365d
    """
    lifetime = None if expires is None else read_duration("--expires", expires)
    scopes = scope or [Scope.RUNS_READ, Scope.RUNS_WRITE]
    async with open_client(read_settings()) as client:
        expires_at = None if lifetime is None else await client.now() + lifetime
        _print_key(await client.api_keys.create(name, scopes, tenant=tenant, expires_at=expires_at), output)


@keys.command("list")
@client_command
async def list_keys(
    client: Client,
    tenant: Annotated[str | None, typer.Option("--tenant", help="Only keys of this tenant.")] = None,
    include_ended: Annotated[bool, typer.Option("--include-ended", help="Include revoked and expired keys.")] = False,
    output: ListOutput = ListFormat.TABLE,
) -> None:
    """List API keys, newest first. The secrets are not stored, so they cannot be shown."""
    rows = [_to_row(key) for key in await client.api_keys.list(tenant=tenant, include_ended=include_ended)]
    printing.print_rows(rows, _COLUMNS, output, "no keys; create one with `retoma keys create NAME`")


@keys.command()
@client_command
async def revoke(client: Client, key: KeyId) -> None:
    """Revoke an API key. Every server rejects it within a second.

    \b
    Example:
      retoma keys revoke 3
    """
    revoked = await client.api_keys.revoke(key)
    printing.stdout().print(f"key {revoked.id} ({printing.format_value(revoked.name)}) revoked")


@keys.command()
@async_command
async def rotate(
    key: KeyId,
    overlap: Annotated[
        str, typer.Option("--overlap", metavar="DURATION", help="How long the old key stays valid.")
    ] = "24h",
    output: DetailOutput = DetailFormat.TABLE,
) -> None:
    """Create a key that replaces another one, which stays valid for a while.

    \b
    Example:
      retoma keys rotate 3 --overlap 2h
    """
    duration = read_duration("--overlap", overlap)
    async with open_client(read_settings()) as client:
        _print_key(await client.api_keys.rotate(key, overlap=duration), output)


def _print_key(new_key: NewApiKey, output: DetailFormat) -> None:
    if output is DetailFormat.JSON:
        print(printing.to_json({**_to_row(new_key.key), "secret": new_key.secret}))
        return
    print(new_key.secret)
    printing.stderr().print(gettext("key %(key)s; it is shown only this once", key=new_key.key.id))


def _to_row(key: ApiKey) -> Row:
    times = {name: getattr(key, name) for name in ("created_at", "expires_at", "used_at", "revoked_at")}
    scopes = sorted(key.scopes)
    return {"id": key.id, "name": key.name, "begins": key.hint, "tenant": key.tenant, "scopes": scopes} | times
