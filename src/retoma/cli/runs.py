"""`retoma runs ...`: inspect and manage runs."""

from __future__ import annotations

import asyncio
from typing import Annotated, Any
from uuid import UUID

import typer

from retoma.cli import printing
from retoma.cli.command_setup import open_client, read_settings, run_async
from retoma.cli.inputs import read_past
from retoma.cli.options import DetailFormat, DetailOutput, ListFormat, ListOutput
from retoma.cli.printing import Column, Row
from retoma.cli.run_details import load_details, print_details
from retoma.client import Client
from retoma.errors import Conflict, NotFound
from retoma.records import ABOUT_FIELDS, Event, Revision, Run
from retoma.states import RunState
from retoma.terminal import escape_text

runs = typer.Typer(no_args_is_help=True, help="Inspect and manage runs.")
RunId = Annotated[
    str,
    typer.Argument(metavar="RUN", help="The run's ID, a unique prefix of it, or a part of the run's title."),
]
ActionKey = Annotated[
    str | None,
    typer.Option("--key", help="Idempotency key: repeating the command with it has no further effect."),
]
POLL_SECONDS = 0.5

_COLUMNS = [
    Column("id", "run"),
    Column("title", formatter=lambda title: printing.format_value(title, 40)),
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
    Column("kind"),
    Column("step"),
    Column("item"),
    Column("attempt"),
    Column("worker"),
    Column("data", formatter=lambda data: printing.format_value(_strip_stack(data), 120)),
]

_STUCK_COLUMNS = [
    Column("run"),
    Column("run_title", "title", lambda title: printing.format_value(title, 40)),
    Column("pipeline"),
    Column("tenant"),
    Column("since", formatter=printing.format_time),
    Column("cause"),
    Column("step"),
    Column("resumes"),
    Column("explanation", formatter=lambda text: printing.format_value(text or "", 120)),
]


@runs.command("list")
def list_runs(
    state: Annotated[
        list[RunState] | None,
        typer.Option("--state", metavar="STATE", help="Only runs in this state; repeatable."),
    ] = None,
    pipeline: Annotated[str | None, typer.Option("--pipeline", help="Only runs of this pipeline.")] = None,
    tenant: Annotated[str | None, typer.Option("--tenant", help="Only this tenant.")] = None,
    limit: Annotated[int, typer.Option("--limit", min=1, max=10_000, help="Maximum number of runs.")] = 20,
    before: Annotated[str | None, typer.Option("--before", help="Only runs older than this one.")] = None,
    since: Annotated[
        str | None,
        typer.Option(
            "--since", metavar="TIME", help="Only runs started since this time, such as 2h or 2030-01-31T08:00."
        ),
    ] = None,
    output: ListOutput = ListFormat.TABLE,
) -> None:
    """List runs, newest first.

    \b
    Examples:
      retoma runs list --since 24h --state failed
      retoma runs list --state failed --state stuck --pipeline film
      retoma runs list -o jsonl --limit 1000
    """
    run_async(_list(state, pipeline, tenant, limit, before, since, output))


@runs.command()
def show(run: RunId, output: DetailOutput = DetailFormat.TABLE) -> None:
    """Show a run with its progress, errors and results, and why it waits.

    \b
    Examples:
      retoma runs show 0199a3
      retoma runs show 0199a3 -o json
    """
    run_async(_show(run, output))


@runs.command()
def events(
    run: RunId,
    after: Annotated[int, typer.Option("--after", help="Only events after this event ID.")] = 0,
    limit: Annotated[int, typer.Option("--limit", min=1, max=100_000, help="Maximum number of events.")] = 1_000,
    follow: Annotated[bool, typer.Option("-f", "--follow", help="Print new events until the run is over.")] = False,
    output: ListOutput = ListFormat.TABLE,
) -> None:
    """List the events of a run, in order.

    \b
    Example:
      retoma runs events 0199a3 --follow
    """
    run_async(_events(run, after, limit, follow, output))


@runs.command()
def cancel(run: RunId, key: ActionKey = None, output: DetailOutput = DetailFormat.TABLE) -> None:
    """Cancel a run. Running jobs are asked to stop, and no new ones start.

    Exits with 4 if the run is already over in another state.

    \b
    Example:
      retoma runs cancel 0199a3
    """
    run_async(_cancel(run, key, output))


@runs.command("stuck")
def list_stuck(
    limit: Annotated[int, typer.Option("--limit", min=1, max=10_000, help="Maximum number of runs.")] = 100,
    output: ListOutput = ListFormat.TABLE,
) -> None:
    """List stuck runs and the cause of each.

    \b
    Example:
      retoma runs stuck
    """
    run_async(_stuck(limit, output))


@runs.command()
def resume(run: RunId, key: ActionKey = None, output: DetailOutput = DetailFormat.TABLE) -> None:
    """Resume a stuck or failed run from where it stopped.

    Exits with 4 if the run is over in another state.

    \b
    Example:
      retoma runs resume 0199a3
    """
    run_async(_resume(run, key, output))


@runs.command()
def skip(
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
    run_async(_skip(run, step, item, key, output))


async def _list(
    states: list[RunState] | None,
    pipeline: str | None,
    tenant: str | None,
    limit: int,
    before: str | None,
    since: str | None,
    output: ListFormat,
) -> None:
    async with open_client(read_settings()) as client:
        found = await client.runs.list(
            states=states or None,
            pipeline=pipeline,
            tenant=tenant,
            limit=limit,
            before=None if before is None else await find_run(client, before),
            since=None if since is None else read_past("--since", since, await client.now()),
        )
    filtered = any((states, pipeline, tenant, before, since))
    empty = "no matching runs" if filtered else "no runs yet; start one with `retoma start PIPELINE APP`"
    printing.print_rows([_to_row(run) for run in found], _COLUMNS, output, empty)
    if output is ListFormat.TABLE and len(found) == limit:
        printing.stderr().print(f"for older runs: --before {found[-1].id}")


async def _show(text: str, output: DetailFormat) -> None:
    async with open_client(read_settings()) as client:
        run = await client.runs.get(await find_run(client, text))
        details = await load_details(client, run)
    if output is DetailFormat.JSON:
        print(printing.to_json(details.to_json(), indent=2))
    else:
        print_details(details)


async def _events(text: str, after: int, limit: int, follow: bool, output: ListFormat) -> None:
    async with open_client(read_settings()) as client:
        run = await find_run(client, text)
        if not follow:
            found = await client.runs.list_events(run, after=after, limit=limit)
            printing.print_rows([_event_row(event) for event in found], _EVENT_COLUMNS, output, "no events")
            return
        while True:
            over = (await client.runs.get(run)).is_over  # read before the events, so none is missed
            for event in await client.runs.list_events(run, after=after, limit=limit):
                after = event.id
                print(_format_event(event, output), flush=True)
            if over:
                return
            await asyncio.sleep(POLL_SECONDS)


async def _cancel(text: str, key: str | None, output: DetailFormat) -> None:
    async with open_client(read_settings()) as client:
        run = await find_run(client, text)
        state = await client.runs.cancel(run, by="command line", key=key)
    if state.is_over and state is not RunState.CANCELLED:
        raise Conflict(f"run {run} is already over: {state}")
    if output is DetailFormat.JSON:
        print(printing.to_json({"run": run, "state": state}))
    else:
        printing.stdout().print(printing.format_state(state))


async def _stuck(limit: int, output: ListFormat) -> None:
    async with open_client(read_settings()) as client:
        found = await client.runs.list_stuck(limit=limit)
    rows = [{**vars(one), "step": one.data.get("step"), "explanation": one.data.get("explanation")} for one in found]
    printing.print_rows(rows, _STUCK_COLUMNS, output, "no stuck runs")


async def _resume(text: str, key: str | None, output: DetailFormat) -> None:
    async with open_client(read_settings()) as client:
        run = await find_run(client, text)
        state = await client.runs.resume(run, by="command line", key=key)
        missing = await client.runs.find_missing_worker(run)
    if output is DetailFormat.JSON:
        print(printing.to_json({"run": run, "state": state, "note": missing and missing.explanation}))
        return
    printing.stdout().print(printing.format_state(state))
    if missing:
        printing.stderr().print(escape_text(missing.explanation), soft_wrap=True)


async def _skip(text: str, step: str, items: list[str], key: str | None, output: DetailFormat) -> None:
    async with open_client(read_settings()) as client:
        run = await find_run(client, text)
        print_revision(run, await client.runs.skip(run, step, items, by="command line", key=key), output)


def print_revision(run: UUID, revision: Revision, output: DetailFormat) -> None:
    if output is DetailFormat.JSON:
        print(printing.to_json({"run": run, "revision": revision.number, "jobs": revision.jobs}))
    elif revision.jobs:
        jobs = "1 job" if revision.jobs == 1 else f"{revision.jobs} jobs"
        printing.stdout().print(f"revision {revision.number}: {jobs} to rerun")
    else:
        printing.stdout().print("nothing to rerun")


async def find_run(client: Client, text: str) -> UUID:
    """Return the only run whose ID starts with `text`, or else whose title contains it.

    A run that was found by its title is named on stderr, since the command may act on it.
    """
    by_id = await client.runs.find(text, limit=4)
    found = by_id or await client.runs.find_by_title(text, limit=4)
    if not found:
        raise NotFound(f"run {escape_text(text)!r} not found")
    if len(found) > 1:
        first = ", ".join(map(str, found[:3]))
        more = ", ..." if len(found) > 3 else ""
        raise typer.BadParameter(f"{text!r} matches several runs: {first}{more}; use a longer text")
    if not by_id:
        run = await client.runs.get(found[0], with_input=False)
        printing.stderr().print(f"run {run.id}: {escape_text(run.title or '')}", soft_wrap=True)
    return found[0]


def _order_input(value: Any) -> Any:
    """Put the fields that identify a run first, so truncation does not hide them."""
    return {name: value[name] for name in ABOUT_FIELDS if name in value} | value if isinstance(value, dict) else value


def _to_row(run: Run) -> Row:
    return {
        "id": run.id,
        "title": run.title,
        "pipeline": run.pipeline,
        "tenant": run.tenant,
        "state": run.state,
        "version": run.version,
        "revision": run.revision,
        "created_at": run.created_at,
        "run_at": run.run_at,
        "ended_at": run.ended_at,
        "took": run.ended_at - run.run_at if run.ended_at else None,
        "input": run.input,
    }


def _event_row(event: Event) -> Row:
    return vars(event)


def _strip_stack(data: Any) -> Any:
    """Return the data of an event without the stack trace, which the JSON output has."""
    return {name: value for name, value in data.items() if name != "stack"} if isinstance(data, dict) else data


def _format_event(event: Event, output: ListFormat) -> str:
    if output in (ListFormat.JSON, ListFormat.JSONL):
        return printing.to_json(_event_row(event))
    parts = [
        printing.format_time(event.at),
        event.kind,
        event.step,
        event.item,
        printing.format_value(_strip_stack(event.data) or "", 200),
    ]
    return "  ".join(escape_text(part) for part in parts if part)
