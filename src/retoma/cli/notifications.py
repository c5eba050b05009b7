"""`retoma notifications ...`: list messages to people and resend dead ones."""

from __future__ import annotations

from dataclasses import asdict
from typing import Annotated
from uuid import UUID

import typer

from retoma.cli import printing
from retoma.cli.command_setup import client_command
from retoma.cli.options import ListFormat, ListOutput, limit_option, state_option
from retoma.cli.printing import Column
from retoma.client import Client
from retoma.errors import Conflict
from retoma.records import MessageState, NotificationMessage

notifications = typer.Typer(
    name="notifications", no_args_is_help=True, help="List notifications of people and resend dead ones."
)

_COLUMNS = [
    Column("id", "message"),
    Column("person_name", "person", max_length=40),
    Column("channel"),
    Column("kinds"),
    Column("state", formatter=printing.format_state),
    Column("attempt", "attempts"),
    Column("created_at", "created", printing.format_time),
    Column("next_at", "next", printing.format_time),
    Column("error", max_length=80),
]


@notifications.command("list")
@client_command
async def list_messages(
    client: Client,
    state: Annotated[list[MessageState] | None, state_option("messages")] = None,
    limit: Annotated[int, limit_option("messages")] = 20,
    output: ListOutput = ListFormat.TABLE,
) -> None:
    """List messages to people, newest first.

    \b
    Examples:
      retoma notifications list --state dead
      retoma notifications list -o json
    """
    found = await client.notifications.list_messages(states=state or None, limit=limit)
    printing.print_rows([_to_row(each) for each in found], _COLUMNS, output, "no matching messages")


@notifications.command()
@client_command
async def resend(
    client: Client,
    message: Annotated[
        UUID | None, typer.Argument(metavar="MESSAGE", help="The dead message; by default all of them.")
    ] = None,
) -> None:
    """Send dead messages again, without what no longer matters."""
    count = await client.notifications.resend(message)
    if message is not None and count == 0:
        raise Conflict(f"there is no dead message {message}")
    print(f"{count} messages are due again")


def _to_row(message: NotificationMessage) -> dict[str, object]:
    return {**asdict(message), "kinds": ", ".join(message.kinds)}
