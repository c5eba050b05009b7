"""`retoma bulk ...`: act on everything that matches a filter."""

from __future__ import annotations

from dataclasses import asdict
from typing import Annotated
from uuid import UUID

import typer

from retoma.cli import printing
from retoma.cli.command_setup import client_command, run_with_client
from retoma.cli.inputs import read_past
from retoma.cli.options import BY, ActionKey, By, ListFormat, ListOutput, OnlyTenant, Since, state_option
from retoma.cli.printing import Column
from retoma.client import Client
from retoma.client.bulk_actions import BulkFilter
from retoma.records import BulkAction, BulkKind
from retoma.states import RunState

bulk = typer.Typer(name="bulk", no_args_is_help=True, help="Act on everything that matches a filter.")
_COLUMNS = [
    Column("id", "action"),
    *map(Column, ("kind", "tenant", "total", "done", "skipped")),
    Column("requested_by", "by"),
    Column("created_at", "started", printing.format_time),
    Column("aborted_at", "aborted", printing.format_time),
    Column("ended_at", "ended", printing.format_time),
]
_TARGET_COLUMNS = [
    Column("subject"),
    Column("run_title", "title", max_length=40),
    *map(Column, ("pipeline", "tenant", "step", "item")),
]


@bulk.command("start")
def start_bulk_action(
    kind: Annotated[BulkKind, typer.Argument(help="What to do.")],
    pipeline: Annotated[str | None, typer.Option("--pipeline", help="Only this pipeline.")] = None,
    tenant: OnlyTenant = None,
    state: Annotated[list[RunState] | None, state_option("runs")] = None,
    title: Annotated[str | None, typer.Option("--title", help="Only runs whose title contains this text.")] = None,
    since: Since = None,
    endpoint: Annotated[int | None, typer.Option("--endpoint", help="Only deliveries to this endpoint.")] = None,
    queue: Annotated[str | None, typer.Option("--queue", help="Only waiting jobs of this queue.")] = None,
    step: Annotated[str | None, typer.Option("--step", help="Only waiting jobs of this step.")] = None,
    code: Annotated[str | None, typer.Option("--code", help="Only jobs whose last attempt ended so.")] = None,
    yes: Annotated[bool, typer.Option("--yes", "-y", help="Do not ask for confirmation.")] = False,
    by: By = BY,
    key: ActionKey = None,
    output: ListOutput = ListFormat.TABLE,
) -> None:
    """Show what matches, ask for confirmation, and act on all of it.

    If you interrupt the command, workers and servers continue: stop them with `retoma bulk abort`.

    \b
    Examples:
      retoma bulk start cancel_runs --pipeline film --since 2h
      retoma bulk start rerun_failed --state failed --yes
      retoma bulk start redeliver --endpoint 3
      retoma bulk start retry_jobs --code RATE_LIMITED
    """

    async def preview_and_start(client: Client) -> None:
        wanted = BulkFilter(
            pipeline=pipeline,
            states=state,
            since=read_past("--since", since, await client.now()),
            title=title,
            endpoint=endpoint,
            queue=queue,
            step=step,
            code=code,
        )
        preview = await client.bulk_actions.preview(kind, wanted, tenant=tenant)
        if not yes and preview.count:
            console = printing.stderr()
            console.print(printing.make_table([asdict(each) for each in preview.sample], _TARGET_COLUMNS))
            typer.confirm(f"{kind}: {preview.count} match. Continue?", abort=True, err=True)
        action = await client.bulk_actions.start(kind, wanted, tenant=tenant, by=by, expected=preview.count, key=key)
        while await client.bulk_actions.advance(action.id):
            pass
        _print([await client.bulk_actions.get(action.id)], output)

    run_with_client(preview_and_start)


@bulk.command("list")
@client_command
async def list_bulk_actions(client: Client, tenant: OnlyTenant = None, output: ListOutput = ListFormat.TABLE) -> None:
    """List bulk actions, newest first."""
    _print(await client.bulk_actions.list(tenant=tenant), output)


@bulk.command("abort")
@client_command
async def abort_bulk_action(
    client: Client,
    action: Annotated[UUID, typer.Argument(metavar="ACTION", help="The ID of the bulk action.")],
    by: By = BY,
    output: ListOutput = ListFormat.TABLE,
) -> None:
    """Stop a bulk action. What it has done stays done."""
    _print([await client.bulk_actions.abort(action, by=by)], output)


def _print(actions: list[BulkAction], output: ListFormat) -> None:
    printing.print_rows(actions, _COLUMNS, output, "no bulk actions yet")
