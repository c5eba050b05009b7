"""`retoma connections ...`: the credentials of outside services. Secrets come from a prompt, stdin or a file."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Annotated, Any

import typer

from retoma.app import App
from retoma.cli import application, printing
from retoma.cli.command_setup import client_command, read_settings, run_with_client
from retoma.cli.options import BY, AppOption, By, ListFormat, ListOutput, OnlyTenant
from retoma.cli.printing import Column
from retoma.cli.served_applications import load_all_served
from retoma.client import Client
from retoma.define.connections import ConnectionType
from retoma.engine.settings_services import SETTINGS_SERVICES
from retoma.errors import NotFound
from retoma.identifiers import ALL_TENANTS
from retoma.terminal import escape_text

connections = typer.Typer(
    name="connections", no_args_is_help=True, help="Manage connections: the credentials of outside services."
)

Service = Annotated[str, typer.Argument(metavar="SERVICE", help="The service, such as openrouter.")]
Tenant = Annotated[str | None, typer.Option("--tenant", help="Of this tenant. Default: of all tenants.")]
Account = Annotated[
    str, typer.Option("--account", help="The account or site, of a service that has several. Default: the only one.")
]

_COLUMNS = [
    Column("tenant", formatter=lambda tenant: tenant or ALL_TENANTS),
    *map(Column, ("service", "account")),
    Column("settings", formatter=lambda settings: ", ".join(f"{name}={value}" for name, value in settings.items())),
    Column("secret_fields", "secrets", lambda names: ", ".join(names)),
    Column("updated_at", "changed", printing.format_time),
    Column("updated_by", "by"),
    Column("tested_at", "tested", printing.format_time),
    Column("test_error", "problem"),
]


@connections.command("list")
@client_command
async def list_connections(client: Client, tenant: OnlyTenant = None, output: ListOutput = ListFormat.TABLE) -> None:
    """List connections, without their secrets. With --tenant, those that the tenant can use.

    \b
    Examples:
      retoma connections list
      retoma connections list --tenant my-channel -o json
    """
    found = await client.connections.list(tenant=tenant)
    printing.print_rows(found, _COLUMNS, output, "no connections; add one with `retoma connections set`")


@connections.command("set")
def set_connection(
    service: Service,
    tenant: Tenant = None,
    account: Account = "",
    fields: Annotated[
        list[str] | None,
        typer.Option("--field", "-f", metavar="NAME=VALUE", help="A field that is not secret; repeatable."),
    ] = None,
    files: Annotated[
        list[str] | None,
        typer.Option("--file", metavar="NAME=PATH", help="Read a field from this file; repeatable."),
    ] = None,
    app: AppOption = None,
    by: By = BY,
    output: ListOutput = ListFormat.TABLE,
) -> None:
    """Enter a connection, or change it. Jobs use the new values from their next attempt on.

    Prompts for the secrets that --file does not name, or reads one line for each from stdin if it is not a terminal. If
    the connection exists and --field or --file is given, its other fields stay as they are.

    \b
    Examples:
      retoma connections set openrouter
      retoma connections set azure --tenant my-channel -f region=brazilsouth --file api_key=/run/secrets/azure
    """
    loaded = _load(app, service)
    kind = SETTINGS_SERVICES[service] if loaded is None else loaded.connection_types[service]
    given = _split_pairs(fields, "--field")
    for name in given.keys() & kind.secret_names:
        raise typer.BadParameter(f"{name} is secret: enter it at the prompt, on stdin, or with --file {name}=PATH")
    given |= {name: _read_file(path) for name, path in _split_pairs(files, "--file").items()}

    async def store(client: Client) -> None:
        is_known = await _exists(client, service, tenant, account)
        values = given if is_known and given else {**given, **_read_secrets(kind, given)}
        changed = await client.connections.set(service, values, tenant=tenant, account=account, by=by)
        printing.print_rows([changed], _COLUMNS, output)

    run_with_client(store, loaded)


@connections.command("delete")
@client_command
async def delete_connection(client: Client, service: Service, tenant: Tenant = None, account: Account = "") -> None:
    """Delete a connection. Jobs then use that of all tenants or, without one, the environment.

    \b
    Example:
      retoma connections delete openrouter --tenant my-channel
    """
    await client.connections.delete(service, tenant=tenant, account=account)


@connections.command("test")
def check_connection(
    service: Service,
    tenant: Tenant = None,
    account: Account = "",
    app: AppOption = None,
    by: By = BY,
) -> None:
    """Try the credentials without a cost or a change. Exits with 1 if they do not work.

    Without a connection for all tenants, tries those of the environment.

    \b
    Examples:
      retoma connections test openrouter
      retoma connections test wordpress --account recipes
    """

    async def check(client: Client) -> bool:
        result = await client.connections.test(service, tenant=tenant, account=account, by=by)
        (printing.stdout() if result.is_ok else printing.stderr()).print(escape_text(result.message), soft_wrap=True)
        return result.is_ok

    if not run_with_client(check, _load(app, service)):
        raise typer.Exit(1)


@connections.command("rotate")
@client_command
async def rotate(client: Client) -> None:
    """Encrypt all connections with the first key of RETOMA_CONNECTIONS_KEY. If it is stopped, run it again.

    \b
    Example:
      RETOMA_CONNECTIONS_KEY=NEW,OLD retoma connections rotate
    """
    count = await client.connections.rotate()
    printing.stdout().print(f"{count} connection{'' if count == 1 else 's'} encrypted with the first key")


def _load(location: str | None, service: str) -> App | None:
    """Return the application, or a served one, that declares the service. Raise NotFound if none does."""
    settings = read_settings()
    if service in SETTINGS_SERVICES:
        return None
    if location or settings.app:
        loaded = [application.load(location, settings)]
    else:
        loaded = load_all_served(settings) or [application.load(None, settings)]
    for app in loaded:
        if service in app.connection_types:
            return app
    known = sorted({name for app in loaded for name in app.connection_types})
    raise NotFound(f"no application declares a service {service!r}; known: {', '.join(known) or 'none'}")


async def _exists(client: Client, service: str, tenant: str | None, account: str) -> bool:
    try:
        await client.connections.get(service, tenant=tenant, account=account)
    except NotFound:
        return False
    return True


def _split_pairs(pairs: list[str] | None, option: str) -> dict[str, str]:
    found = {}
    for pair in pairs or ():
        name, equals, value = pair.partition("=")
        if not equals:
            raise typer.BadParameter(f"{option} takes NAME=..., not {name!r:.40}")
        found[name] = value
    return found


def _read_file(path: str) -> str:
    try:
        return Path(path).read_text(encoding="utf-8").strip()
    except (OSError, UnicodeDecodeError) as error:
        raise typer.BadParameter(f"cannot read {path}: {type(error).__name__}") from None


def _read_secrets(kind: ConnectionType, given: dict[str, Any]) -> dict[str, str]:
    """Read the secrets that were not given. Those that come from a consent in the browser are not asked for."""
    from_consent = kind.consent.fields if kind.consent else ()
    read = {}
    for field in kind.fields:
        if field.kind != "secret" or field.name in given or field.name in from_consent:
            continue
        if sys.stdin.isatty():
            optional = "" if field.required else " (optional)"
            read[field.name] = typer.prompt(f"{field.title}{optional}", hide_input=True, default="", show_default=False)
        else:
            read[field.name] = sys.stdin.readline().strip()
    return read
