"""`retoma people ...`: manage accounts and roles."""

from __future__ import annotations

import sys
from typing import Annotated, Any

import typer

from retoma.cli import printing
from retoma.cli.command_setup import client_command, read_settings
from retoma.cli.messages import gettext
from retoma.cli.options import DetailFormat, DetailOutput, ListFormat, ListOutput
from retoma.cli.printing import Column
from retoma.client import Client
from retoma.records import NewAccountLink, Person, Role, RoleGrant
from retoma.settings import Settings

people = typer.Typer(name="people", no_args_is_help=True, help="Manage accounts of people and their roles.")
Email = Annotated[str, typer.Argument(metavar="EMAIL", help="The person's e-mail address.")]
Name = Annotated[str, typer.Argument(metavar="NAME", help="The person's name, shown with decisions.")]
OptionalRole = Annotated[Role | None, typer.Option("--role", help="The role. Default: none, which sees nothing.")]
RoleOption = Annotated[Role, typer.Option("--role", help="The role.")]
TenantOption = Annotated[str | None, typer.Option("--tenant", help="Only in this tenant. Default: all tenants.")]

_COLUMNS = [
    Column("email"),
    Column("name"),
    Column("roles", formatter=", ".join),
    Column("state"),
    Column("created_at", "created", printing.format_time),
]


@people.command()
@client_command
async def create(
    client: Client,
    name: Name,
    email: Email,
    role: OptionalRole = None,
    tenant: TenantOption = None,
    output: ListOutput = ListFormat.TABLE,
) -> None:
    """Create an account with a password.

    Prompts for the password, or reads the first line of stdin if it is not a terminal.

    \b
    Example:
      retoma people create "Ana Souza" ana@example.com --role administrator
    """
    made = await client.people.create(name, email, role=role, tenant=tenant, password=_read_password())
    _print([made], output)


@people.command()
@client_command
async def invite(
    client: Client,
    name: Name,
    email: Email,
    role: RoleOption,
    tenant: TenantOption = None,
    output: DetailOutput = DetailFormat.TABLE,
) -> None:
    """Create an account and print a link to send. The person sets a password with it, once, within seven days.

    \b
    Example:
      retoma people invite "Bia Lima" bia@example.com --role reviewer --tenant my-channel
    """
    _print_link(await client.people.invite(name, email, role=role, tenant=tenant), output)


@people.command()
@client_command
async def reset(client: Client, email: Email, output: DetailOutput = DetailFormat.TABLE) -> None:
    """Print a link with which a person sets a new password, once, within 24 hours.

    For somebody who has no password yet, it is a new invitation. Earlier links stop working.

    \b
    Example:
      retoma people reset ana@example.com
    """
    _print_link(await client.people.create_link(email), output)


@people.command("list")
@client_command
async def list_people(
    client: Client,
    include_disabled: Annotated[bool, typer.Option("--include-disabled", help="Include disabled accounts.")] = False,
    output: ListOutput = ListFormat.TABLE,
) -> None:
    """List people by name, with their roles."""
    _print(await client.people.list(include_disabled=include_disabled), output)


@people.command("set-role")
@client_command
async def set_role(
    client: Client,
    email: Email,
    role: Annotated[str, typer.Argument(metavar="ROLE", help=f"{', '.join(Role)}, or none to remove it.")],
    tenant: TenantOption = None,
    output: ListOutput = ListFormat.TABLE,
) -> None:
    """Give a person a role in a tenant or in all tenants, in place of the one there. It applies at once.

    \b
    Examples:
      retoma people set-role bia@example.com operator --tenant my-channel
      retoma people set-role bia@example.com none --tenant my-channel
    """
    if role == "none":
        changed = await client.people.remove_role(email, tenant=tenant)
    else:
        changed = await client.people.set_role(email, role, tenant=tenant)
    _print([changed], output)


@people.command()
@client_command
async def disable(client: Client, email: Email, output: ListOutput = ListFormat.TABLE) -> None:
    """Disable an account: its sessions end, and nobody can log in with it. Its history keeps the name."""
    _print([await client.people.disable(email)], output)


@people.command()
@client_command
async def enable(client: Client, email: Email, output: ListOutput = ListFormat.TABLE) -> None:
    """Enable a disabled account."""
    _print([await client.people.enable(email)], output)


@people.command("end-sessions")
@client_command
async def end_sessions(client: Client, email: Email) -> None:
    """Log a person out of all browsers."""
    ended = await client.people.end_sessions(email)
    printing.stdout().print(gettext("sessions ended: %(count)s", count=ended))


@people.command("remove-second-factor")
@client_command
async def remove_second_factor(client: Client, email: Email, output: ListOutput = ListFormat.TABLE) -> None:
    """Remove the second factor of a person who has lost it, and the recovery codes."""
    _print([await client.people.remove_second_factor(email)], output)


@people.command()
@client_command
async def unlink(client: Client, email: Email, output: ListOutput = ListFormat.TABLE) -> None:
    """Unlink an account from single sign-on. The next login there links it again."""
    _print([await client.people.unlink(email)], output)


def describe_grant(grant: RoleGrant) -> str:
    return f"{grant.role} in {'all tenants' if grant.tenant is None else grant.tenant}"


def _print(found: list[Person], output: ListFormat) -> None:
    rows = [_to_row(each) for each in found]
    printing.print_rows(rows, _COLUMNS, output, "no people; create one with `retoma people create NAME EMAIL`")


def _to_row(person: Person) -> dict[str, Any]:
    return {
        "id": person.id,
        "email": person.email,
        "name": person.name,
        "roles": [describe_grant(grant) for grant in person.roles],
        "state": "disabled" if person.disabled_at else "active" if person.has_password else "invited",
        "created_at": person.created_at,
    }


def _print_link(link: NewAccountLink, output: DetailFormat) -> None:
    address = f"{get_server_url(read_settings())}/set-password/{link.token}"
    if output is DetailFormat.JSON:
        print(printing.to_json({**_to_row(link.person), "link": address, "expires_at": link.expires_at}))
        return
    print(address)
    print(
        gettext("It works once, until %(time)s.", time=printing.format_time(link.expires_at)),
        file=sys.stderr,
    )


def get_server_url(settings: Settings) -> str:
    return (settings.public_url or f"http://{settings.host}:{settings.port}").rstrip("/")


def _read_password() -> str:
    if not sys.stdin.isatty():
        return sys.stdin.readline().rstrip("\r\n")
    entered: str = typer.prompt(gettext("Password"), hide_input=True, confirmation_prompt=True, err=True)
    return entered
