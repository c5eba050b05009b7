"""`retoma audit ...`: read the audit log, and delete old entries."""

from __future__ import annotations

import json
from dataclasses import asdict
from typing import Annotated, Any

import typer

from retoma.cli import printing
from retoma.cli.command_setup import client_command
from retoma.cli.inputs import read_past
from retoma.cli.options import ListFormat, ListOutput, OnlyTenant, Since, Until, limit_option
from retoma.cli.printing import Column
from retoma.client import Client
from retoma.records import AuditEntry

audit = typer.Typer(name="audit", no_args_is_help=True, help="Read the audit log, and delete old entries.")

_COLUMNS = [
    Column("id", "entry"),
    Column("at", "time", printing.format_time),
    Column("actor_kind", "by"),
    Column("actor_name", "name", max_length=40),
    Column("address"),
    Column("action"),
    Column("object_id", "object", max_length=40),
    Column("tenant", max_length=30),
    Column("before", max_length=60),
    Column("after", max_length=60),
]


@audit.command("list")
@client_command
async def list_entries(
    client: Client,
    actor: Annotated[
        str | None, typer.Option("--actor", help="Only what this person, key or user did, by name.")
    ] = None,
    action: Annotated[
        str | None,
        typer.Option("--action", help="Only this action, such as review.decide; or all on a kind: review."),
    ] = None,
    object_id: Annotated[str | None, typer.Option("--object", help="Only the object with this full ID.")] = None,
    tenant: OnlyTenant = None,
    since: Since = None,
    until: Until = None,
    limit: Annotated[int, limit_option("entries")] = 20,
    before: Annotated[int | None, typer.Option("--before", help="Only entries older than this one.")] = None,
    output: ListOutput = ListFormat.TABLE,
) -> None:
    """List who did what, newest first.

    \b
    Examples:
      retoma audit list --actor "Ana Lima" --since 7d
      retoma audit list --action api_key -o csv
    """
    now = await client.now()
    found = await client.audit.list(
        actor=actor,
        action=action,
        object_id=object_id,
        tenant=tenant,
        since=read_past("--since", since, now),
        until=read_past("--until", until, now),
        before=before,
        limit=limit,
    )
    older = f"for older entries: --before {found[-1].id}" if len(found) == limit else ""
    is_table = output is ListFormat.TABLE
    rows = [_to_row(each) if is_table else asdict(each) for each in found]
    printing.print_rows(rows, _COLUMNS, output, "no matching entries", next_page=older)


@audit.command()
@client_command
async def delete(
    client: Client,
    before: Annotated[str, typer.Option("--before", help="A time, or an age such as 365d.")],
) -> None:
    """Delete the entries before a time. The deletion is an entry itself.

    \b
    Example:
      retoma audit delete --before 730d
    """
    at = read_past("--before", before, await client.now())
    assert at is not None
    printing.stdout().print(f"deleted: {await client.audit.delete_before(at)}")


def _to_row(entry: AuditEntry) -> dict[str, Any]:
    shown = {name: None if value is None else json.dumps(value) for name, value in _values(entry).items()}
    return asdict(entry) | shown


def _values(entry: AuditEntry) -> dict[str, Any]:
    return {"before": entry.before, "after": entry.after}
