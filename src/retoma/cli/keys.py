"""`retoma keys ...`: manage API keys."""

from __future__ import annotations

from datetime import timedelta
from typing import Annotated

import typer

from retoma.cli import printing
from retoma.cli.command_setup import open_client, read_settings, run_async
from retoma.cli.inputs import read_duration
from retoma.cli.messages import gettext
from retoma.cli.options import DetailFormat, DetailOutput, ListFormat, ListOutput
from retoma.cli.printing import Column, Row
from retoma.records import KeyRecord, NewKey, Scope
from retoma.store import clock

keys = typer.Typer(no_args_is_help=True, help="Manage API keys.")
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
def create(
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
    run_async(_create(name, scope or [Scope.RUNS_READ, Scope.RUNS_WRITE], tenant, lifetime, output))


@keys.command("list")
def list_keys(
    tenant: Annotated[str | None, typer.Option("--tenant", help="Only keys of this tenant.")] = None,
    everything: Annotated[bool, typer.Option("--all", help="Include revoked and expired keys.")] = False,
    output: ListOutput = ListFormat.TABLE,
) -> None:
    """List API keys, newest first. The secrets are not stored, so they cannot be shown."""
    run_async(_list(tenant, everything, output))


@keys.command()
def revoke(key: KeyId) -> None:
    """Revoke an API key. Every server rejects it within a second.

    \b
    Example:
      retoma keys revoke 3
    """
    run_async(_revoke(key))


@keys.command()
def rotate(
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
    run_async(_rotate(key, read_duration("--overlap", overlap), output))


async def _create(
    name: str, scopes: list[Scope], tenant: str | None, lifetime: timedelta | None, output: DetailFormat
) -> None:
    async with open_client(read_settings()) as client:
        expires_at = None if lifetime is None else await clock.now(client.database) + lifetime
        _print_key(await client.api_keys.create(name, scopes, tenant=tenant, expires_at=expires_at), output)


async def _list(tenant: str | None, everything: bool, output: ListFormat) -> None:
    async with open_client(read_settings()) as client:
        found = await client.api_keys.list(tenant=tenant, with_ended=everything)
    printing.print_rows(
        [_to_row(key) for key in found], _COLUMNS, output, "no keys; create one with `retoma keys create NAME`"
    )


async def _revoke(key: int) -> None:
    async with open_client(read_settings()) as client:
        revoked = await client.api_keys.revoke(key)
    printing.stdout().print(f"key {revoked.id} ({printing.format_value(revoked.name)}) revoked")


async def _rotate(key: int, overlap: timedelta, output: DetailFormat) -> None:
    async with open_client(read_settings()) as client:
        _print_key(await client.api_keys.rotate(key, overlap=overlap), output)


def _print_key(new_key: NewKey, output: DetailFormat) -> None:
    if output is DetailFormat.JSON:
        print(printing.to_json({**_to_row(new_key.key), "secret": new_key.secret}))
        return
    print(new_key.secret)
    printing.stderr().print(gettext("key %(key)s; it is shown only this once", key=new_key.key.id))


def _to_row(key: KeyRecord) -> Row:
    return {
        "id": key.id,
        "name": key.name,
        "begins": key.hint,
        "tenant": key.tenant,
        "scopes": sorted(key.scopes),
        "created_at": key.created_at,
        "expires_at": key.expires_at,
        "used_at": key.used_at,
        "revoked_at": key.revoked_at,
    }
