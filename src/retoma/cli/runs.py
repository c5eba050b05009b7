"""`retoma runs ...`: inspect and manage runs."""

from __future__ import annotations

import asyncio
from dataclasses import asdict
from typing import Annotated, Any
from uuid import UUID

import typer

from retoma.cli import printing
from retoma.cli.command_setup import client_command
from retoma.cli.inputs import read_past
from retoma.cli.lookups import find_run
from retoma.cli.options import (
    BY,
    ActionKey,
    DetailFormat,
    DetailOutput,
    Item,
    ListFormat,
    ListOutput,
    OnlyTenant,
    RunId,
    Since,
    limit_option,
    state_option,
)
from retoma.cli.printing import Column, Row
from retoma.cli.run_details import load_details, print_details
from retoma.client import Client
from retoma.errors import Conflict
from retoma.records import ABOUT_FIELDS, Event, OrphanResolution, Revision, Run
from retoma.states import RunState
from retoma.terminal import escape_text

runs = typer.Typer(name="runs", no_args_is_help=True, help="Inspect and manage runs.")
POLL_SECONDS = 0.5

_COLUMNS = [
    Column("id", "run"),
    Column("title", max_length=40),
    Column("pipeline"),
    Column("tenant"),
    Column("state", formatter=printing.format_state),
    Column("created_at", "started", printing.format_time),
    Column("took", formatter=printing.format_duration),
    Column("input", formatter=lambda value: printing.format_value(_order_input(value), 60)),
]
_EVENT_COLUMNS = [
    Column("id"),
    Column("at", formatter=printing.format_time),
    *map(Column, ("kind", "step", "item", "attempt", "worker")),
    Column("data", formatter=lambda data: printing.format_value(_strip_stack(data), 120)),
]

_STUCK_COLUMNS = [
    Column("run"),
    Column("run_title", "title", max_length=40),
    Column("pipeline"),
    Column("tenant"),
    Column("since", formatter=printing.format_time),
    Column("cause"),
    Column("step"),
    Column("resumes"),
    Column("explanation", max_length=120),
]
_ORPHAN_COLUMNS = [
    Column("run"),
    Column("run_title", "title", max_length=40),
    *map(Column, ("pipeline", "tenant", "step")),
    Column("item", max_length=40),
    Column("revision"),
    Column("effect", "name"),
    Column("begun_at", "begun", printing.format_time),
    Column("key", max_length=40),
    Column("value", max_length=60),
]


@runs.command("list")
@client_command
async def list_runs(
    client: Client,
    state: Annotated[list[RunState] | None, state_option("runs")] = None,
    pipeline: Annotated[str | None, typer.Option("--pipeline", help="Only runs of this pipeline.")] = None,
    tenant: OnlyTenant = None,
    parent: Annotated[
        str | None, typer.Option("--parent", help="Only the child runs of this run, by its ID, prefix or title.")
    ] = None,
    limit: Annotated[int, limit_option("runs")] = 20,
    before: Annotated[str | None, typer.Option("--before", help="Only runs older than this one.")] = None,
    since: Since = None,
    output: ListOutput = ListFormat.TABLE,
) -> None:
    """List runs, newest first.

    \b
    Examples:
      retoma runs list --since 24h --state failed
      retoma runs list --state failed --state stuck --pipeline film
      retoma runs list -o jsonl --limit 1000
    """
    found = await client.runs.list(
        states=state or None,
        pipeline=pipeline,
        tenant=tenant,
        parent=None if parent is None else await find_run(client, parent),
        limit=limit,
        before=None if before is None else await find_run(client, before),
        since=read_past("--since", since, await client.now()),
    )
    filtered = any((state, pipeline, tenant, parent, before, since))
    empty = "no matching runs" if filtered else "no runs yet; start one with `retoma start PIPELINE APP`"
    older = f"for older runs: --before {found[-1].id}" if len(found) == limit else ""
    printing.print_rows([_to_row(run) for run in found], _COLUMNS, output, empty, next_page=older)


@runs.command()
@client_command
async def show(client: Client, run: RunId, output: DetailOutput = DetailFormat.TABLE) -> None:
    """Show a run with its progress, errors and results, and why it waits.

    \b
    Examples:
      retoma runs show 0199a3
      retoma runs show 0199a3 -o json
    """
    details = await load_details(client, await client.runs.get(await find_run(client, run)))
    if output is DetailFormat.JSON:
        print(printing.to_json(details.to_json(), indent=2))
    else:
        print_details(details)


@runs.command()
@client_command
async def events(
    client: Client,
    run: RunId,
    after: Annotated[int, typer.Option("--after", help="Only events after this event ID.")] = 0,
    limit: Annotated[int, limit_option("events", 100_000)] = 1_000,
    follow: Annotated[bool, typer.Option("-f", "--follow", help="Print new events until the run is over.")] = False,
    output: ListOutput = ListFormat.TABLE,
) -> None:
    """List the events of a run, in order.

    \b
    Example:
      retoma runs events 0199a3 --follow
    """
    found = await find_run(client, run)
    if follow:
        await _follow_events(client, found, after, limit, output)
    else:
        listed = await client.runs.list_events(found, after=after, limit=limit)
        printing.print_rows(listed, _EVENT_COLUMNS, output, "no events")


@runs.command()
@client_command
async def cancel(client: Client, run: RunId, key: ActionKey = None, output: DetailOutput = DetailFormat.TABLE) -> None:
    """Cancel a run. Running jobs are asked to stop, and no new ones start.

    Exits with 4 if the run is already over in another state.

    \b
    Example:
      retoma runs cancel 0199a3
    """
    found = await find_run(client, run)
    state = await client.runs.cancel(found, by=BY, key=key)
    if state.is_over and state is not RunState.CANCELLED:
        raise Conflict(f"run {found} is already over: {state}")
    printing.print_result({"run": found, "state": state}, printing.format_state(state), output)


@runs.command("stuck")
@client_command
async def list_stuck(
    client: Client,
    limit: Annotated[int, limit_option("runs")] = 100,
    output: ListOutput = ListFormat.TABLE,
) -> None:
    """List stuck runs and the cause of each.

    \b
    Example:
      retoma runs stuck
    """
    found = await client.runs.list_stuck(limit=limit)
    rows = [{**vars(one), "step": one.data.get("step"), "explanation": one.data.get("explanation")} for one in found]
    printing.print_rows(rows, _STUCK_COLUMNS, output, "no stuck runs")


@runs.command()
@client_command
async def resume(client: Client, run: RunId, key: ActionKey = None, output: DetailOutput = DetailFormat.TABLE) -> None:
    """Resume a stuck or failed run from where it stopped.

    Exits with 4 if the run is over in another state.

    \b
    Example:
      retoma runs resume 0199a3
    """
    found = await find_run(client, run)
    state = await client.runs.resume(found, by=BY, key=key)
    missing = await client.runs.find_missing_worker(found)
    note = missing and missing.explanation
    printing.print_result({"run": found, "state": state, "note": note}, printing.format_state(state), output)
    if note and output is DetailFormat.TABLE:
        printing.stderr().print(escape_text(note), soft_wrap=True)


@runs.command()
@client_command
async def skip(
    client: Client,
    run: RunId,
    step: Annotated[str, typer.Option("--step", help="The step of the items.")],
    item: Annotated[list[str], typer.Option("--item", help="An item to skip; repeatable.")],
    key: ActionKey = None,
    output: DetailOutput = DetailFormat.TABLE,
) -> None:
    """Skip items of a finished run and rerun the steps that join them.

    \b
    Example:
      retoma runs skip 0199a3 --step text --item torn.pdf
    """
    found = await find_run(client, run)
    print_revision(found, await client.runs.skip(found, step, item, by=BY, key=key), output)


@runs.command("orphans")
@client_command
async def list_orphans(
    client: Client,
    tenant: OnlyTenant = None,
    limit: Annotated[int, limit_option("orphans")] = 100,
    after: Annotated[str | None, typer.Option("--after", help="Only orphans after this cursor.")] = None,
    output: ListOutput = ListFormat.TABLE,
) -> None:
    """List calls that jobs may have left at a provider and that nobody has resolved, oldest first.

    Look for them at the provider, then use `retoma runs resolve-orphan`.

    \b
    Example:
      retoma runs orphans
    """
    found = await client.runs.list_orphans(tenant=tenant, after=after, limit=limit)
    newer = f"for newer orphans: --after {found[-1].cursor}" if len(found) == limit else ""
    printing.print_rows(found, _ORPHAN_COLUMNS, output, "no orphans", next_page=newer)


@runs.command("resolve-orphan")
@client_command
async def resolve_orphan(
    client: Client,
    run: RunId,
    step: Annotated[str, typer.Argument(metavar="STEP", help="The step that left it.")],
    effect: Annotated[str, typer.Argument(metavar="NAME", help="The name of `once`, or `external`.")],
    resolution: Annotated[
        OrphanResolution, typer.Argument(metavar="RESOLUTION", help="nothing_found or cancelled_by_hand.")
    ],
    item: Item = "",
    revision: Annotated[
        int | None, typer.Option("--revision", min=1, help="Default: the newest that is not resolved.")
    ] = None,
    output: DetailOutput = DetailFormat.TABLE,
) -> None:
    """Record what became of a call that a job may have left at a provider.

    Look for it at the provider first. `retoma runs orphans` lists such orphans. Exits with 4 if somebody resolved it
    in another way.

    \b
    Example:
      retoma runs resolve-orphan 0199a3 clip external cancelled_by_hand
    """
    found = await find_run(client, run)
    orphan = await client.runs.resolve_orphan(found, step, effect, resolution, item=item, revision=revision, by=BY)
    text = f"{orphan.resolution} by {escape_text(orphan.resolved_by or '')}"
    printing.print_result(asdict(orphan), text, output)


def print_revision(run: UUID, revision: Revision, output: DetailFormat) -> None:
    jobs = "1 job" if revision.jobs == 1 else f"{revision.jobs} jobs"
    text = f"revision {revision.number}: {jobs} to rerun" if revision.jobs else "nothing to rerun"
    printing.print_result({"run": run, "revision": revision.number, "jobs": revision.jobs}, text, output)


async def _follow_events(client: Client, run: UUID, after: int, limit: int, output: ListFormat) -> None:
    while True:
        over = (await client.runs.get(run)).is_over  # read before the events, so none is missed
        for event in await client.runs.list_events(run, after=after, limit=limit):
            after = event.id
            print(_format_event(event, output), flush=True)
        if over:
            return
        await asyncio.sleep(POLL_SECONDS)


def _order_input(value: Any) -> Any:
    """Put the fields that identify a run first, so truncation does not hide them."""
    return {name: value[name] for name in ABOUT_FIELDS if name in value} | value if isinstance(value, dict) else value


_FIELDS = (
    "id",
    "title",
    "pipeline",
    "tenant",
    "state",
    "version",
    "revision",
    "created_at",
    "run_at",
    "ended_at",
    "parent",
)


def _to_row(run: Run) -> Row:
    took = run.ended_at - run.run_at if run.ended_at else None
    return {name: getattr(run, name) for name in _FIELDS} | {"took": took, "input": run.input}


def _strip_stack(data: Any) -> Any:
    """Return the data of an event without the stack trace, which the JSON output has."""
    return {name: value for name, value in data.items() if name != "stack"} if isinstance(data, dict) else data


def _format_event(event: Event, output: ListFormat) -> str:
    if output in (ListFormat.JSON, ListFormat.JSONL):
        return printing.to_json(vars(event))
    parts = [
        printing.format_time(event.at),
        event.kind,
        event.step,
        event.item,
        printing.format_value(_strip_stack(event.data) or "", 200),
    ]
    return "  ".join(escape_text(part) for part in parts if part)
