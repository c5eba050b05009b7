"""`retoma runs ...`: look at runs, and act on them."""

from __future__ import annotations

import asyncio
from typing import Annotated, Any
from uuid import UUID

import typer

from retoma.cli import output
from retoma.cli.inputs import read_past
from retoma.cli.options import Format, Listing, Shape, ShortFormat
from retoma.cli.output import Column, Row
from retoma.cli.session import in_loop, opened_client, read_settings
from retoma.cli.show import facts, print_facts
from retoma.client import Client
from retoma.errors import Conflict, NotFound
from retoma.records import ABOUT, Event, Revision, Run
from retoma.states import RunState
from retoma.terminal import clean

runs = typer.Typer(no_args_is_help=True, help="Look at runs, and act on them.")
RunId = Annotated[str, typer.Argument(metavar="RUN", help="The run's id, or as much of its beginning as is unique.")]
ActKey = Annotated[
    str | None,
    typer.Option("--key", help="An idempotency key: given again, the act is not repeated and gets its first answer."),
]
SECONDS_BETWEEN_LOOKS = 0.5

_COLUMNS = [
    Column("id", "run"),
    Column("pipeline"),
    Column("tenant"),
    Column("state", shown=output.state),
    Column("created_at", "started", output.moment),
    Column("took", shown=output.duration),
    Column("input", shown=lambda given: output.value(_about_first(given), 60)),
]
_EVENT_COLUMNS = [
    Column("id"),
    Column("at", shown=output.moment),
    Column("kind"),
    Column("step"),
    Column("item"),
    Column("attempt"),
    Column("worker"),
    Column("data", shown=lambda data: output.value(_told(data), 120)),
]

_STUCK_COLUMNS = [
    Column("run"),
    Column("pipeline"),
    Column("tenant"),
    Column("since", shown=output.moment),
    Column("cause"),
    Column("step"),
    Column("resumes"),
    Column("why", shown=lambda why: output.value(why or "", 120)),
]


@runs.command("list")
def list_runs(
    state: Annotated[
        list[RunState] | None,
        typer.Option("--state", metavar="STATE", help="Only runs in this state; may be repeated."),
    ] = None,
    pipeline: Annotated[str | None, typer.Option("--pipeline", help="Only runs of this pipeline.")] = None,
    tenant: Annotated[str | None, typer.Option("--tenant", help="Only this tenant's runs.")] = None,
    limit: Annotated[int, typer.Option("--limit", min=1, max=10_000, help="At most so many.")] = 20,
    before: Annotated[str | None, typer.Option("--before", help="Only runs older than this one.")] = None,
    since: Annotated[
        str | None,
        typer.Option("--since", metavar="TIME", help="Only runs started since then: 2h ago, or 2030-01-31T08:00."),
    ] = None,
    how: Listing = Format.TABLE,
) -> None:
    """List runs, newest first.

    \b
    retoma runs list --since 24h --state failed
    retoma runs list --state failed --state stuck --pipeline film
    retoma runs list -o jsonl --limit 1000
    """
    in_loop(_list(state, pipeline, tenant, limit, before, since, how))


@runs.command()
def show(run: RunId, how: Shape = ShortFormat.TABLE) -> None:
    """Show one run: how far it is, why it waits, what failed, what came out.

    \b
    retoma runs show 0199a3
    retoma runs show 0199a3 -o json
    """
    in_loop(_show(run, how))


@runs.command()
def events(
    run: RunId,
    after: Annotated[int, typer.Option("--after", help="Only events after this number.")] = 0,
    limit: Annotated[int, typer.Option("--limit", min=1, max=100_000, help="At most so many.")] = 1_000,
    follow: Annotated[bool, typer.Option("-f", "--follow", help="Go on until the run is over.")] = False,
    how: Listing = Format.TABLE,
) -> None:
    """What happened in a run, in order.

    \b
    retoma runs events 0199a3 --follow
    """
    in_loop(_events(run, after, limit, follow, how))


@runs.command()
def cancel(run: RunId, key: ActKey = None, how: Shape = ShortFormat.TABLE) -> None:
    """Let nothing new start in a run. What runs is told to stop.

    Exits with 4 if the run had ended in another way.

    \b
    retoma runs cancel 0199a3
    """
    in_loop(_cancel(run, key, how))


@runs.command("stuck")
def list_stuck(
    limit: Annotated[int, typer.Option("--limit", min=1, max=10_000, help="At most so many.")] = 100,
    how: Listing = Format.TABLE,
) -> None:
    """Runs that should go on and do not, with why.

    \b
    retoma runs stuck
    """
    in_loop(_stuck(limit, how))


@runs.command()
def resume(run: RunId, key: ActKey = None, how: Shape = ShortFormat.TABLE) -> None:
    """Let a run go on that is stuck or has failed, from where it stood.

    Exits with 4 if it ended in another way.

    \b
    retoma runs resume 0199a3
    """
    in_loop(_resume(run, key, how))


@runs.command()
def skip(
    run: RunId,
    step: Annotated[str, typer.Option("--step", help="The step whose items these are.")],
    item: Annotated[list[str], typer.Option("--item", help="An item to leave out; may be repeated.")],
    key: ActKey = None,
    how: Shape = ShortFormat.TABLE,
) -> None:
    """Leave items out of a run that is over, and make anew what joins them.

    \b
    retoma runs skip 0199a3 --step text --item torn.pdf
    """
    in_loop(_skip(run, step, item, key, how))


async def _list(
    states: list[RunState] | None,
    pipeline: str | None,
    tenant: str | None,
    limit: int,
    before: str | None,
    since: str | None,
    how: Format,
) -> None:
    async with opened_client(read_settings()) as client:
        found = await client.runs(
            states=states or None,
            pipeline=pipeline,
            tenant=tenant,
            limit=limit,
            before=None if before is None else await found_run(client, before),
            since=None if since is None else read_past("--since", since, await client.now()),
        )
    filtered = any((states, pipeline, tenant, before, since))
    empty = "no runs match" if filtered else "there are no runs yet; `retoma start PIPELINE APP` starts one"
    output.emit([_row(run) for run in found], _COLUMNS, how, empty)
    if how is Format.TABLE and len(found) == limit:
        output.err().print(f"older ones: --before {found[-1].id}")


async def _show(text: str, how: ShortFormat) -> None:
    async with opened_client(read_settings()) as client:
        run = await client.show(await found_run(client, text))
        known = await facts(client, run)
    if how is ShortFormat.JSON:
        print(output.as_json(known.plain(), indent=2))
    else:
        print_facts(known)


async def _events(text: str, after: int, limit: int, follow: bool, how: Format) -> None:
    async with opened_client(read_settings()) as client:
        run = await found_run(client, text)
        if not follow:
            found = await client.events(run, after=after, limit=limit)
            output.emit([_event_row(event) for event in found], _EVENT_COLUMNS, how, "no events")
            return
        while True:
            over = (await client.show(run)).is_over  # before its events, so that the last ones are seen
            for event in await client.events(run, after=after, limit=limit):
                after = event.id
                print(_line(event, how), flush=True)
            if over:
                return
            await asyncio.sleep(SECONDS_BETWEEN_LOOKS)


async def _cancel(text: str, key: str | None, how: ShortFormat) -> None:
    async with opened_client(read_settings()) as client:
        run = await found_run(client, text)
        state = await client.cancel(run, by="command line", key=key)
    if state.is_over and state is not RunState.CANCELLED:
        raise Conflict(f"run {run} is over already: {state}")
    if how is ShortFormat.JSON:
        print(output.as_json({"run": run, "state": state}))
    else:
        output.out().print(output.state(state))


async def _stuck(limit: int, how: Format) -> None:
    async with opened_client(read_settings()) as client:
        found = await client.stuck(limit=limit)
    rows = [{**vars(one), "step": one.data.get("step"), "why": one.data.get("why")} for one in found]
    output.emit(rows, _STUCK_COLUMNS, how, "no run is stuck")


async def _resume(text: str, key: str | None, how: ShortFormat) -> None:
    async with opened_client(read_settings()) as client:
        run = await found_run(client, text)
        state = await client.resume(run, by="command line", key=key)
        lacking = await client.lacks_worker(run)
    if how is ShortFormat.JSON:
        print(output.as_json({"run": run, "state": state, "note": lacking and lacking.why}))
        return
    output.out().print(output.state(state))
    if lacking:
        output.err().print(clean(lacking.why), soft_wrap=True)


async def _skip(text: str, step: str, items: list[str], key: str | None, how: ShortFormat) -> None:
    async with opened_client(read_settings()) as client:
        run = await found_run(client, text)
        say_revision(run, await client.skip(run, step, items, by="command line", key=key), how)


def say_revision(run: UUID, made: Revision, how: ShortFormat) -> None:
    if how is ShortFormat.JSON:
        print(output.as_json({"run": run, "revision": made.number, "jobs": made.jobs}))
    elif made.jobs:
        output.out().print(f"revision {made.number}: {made.jobs} to be made anew")
    else:
        output.out().print("nothing to be made anew")


async def found_run(client: Client, text: str) -> UUID:
    """The one run whose id begins like this."""
    found = await client.find(text, limit=4)
    if not found:
        raise NotFound(f"there is no run {clean(text)!r}")
    if len(found) > 1:
        some = ", ".join(map(str, found[:3]))
        raise typer.BadParameter(f"{text!r} fits several runs: {some}{', ...' if len(found) > 3 else ''}; give more")
    return found[0]


def _about_first(given: Any) -> Any:
    """So that what is cut off is not what a run is about."""
    return {name: given[name] for name in ABOUT if name in given} | given if isinstance(given, dict) else given


def _row(run: Run) -> Row:
    return {
        "id": run.id,
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


def _told(data: Any) -> Any:
    """What a person wants of an event's data; the stack is in the JSON."""
    return {name: said for name, said in data.items() if name != "stack"} if isinstance(data, dict) else data


def _line(event: Event, how: Format) -> str:
    if how in (Format.JSON, Format.JSONL):
        return output.as_json(_event_row(event))
    parts = [output.moment(event.at), event.kind, event.step, event.item, output.value(_told(event.data) or "", 200)]
    return "  ".join(clean(part) for part in parts if part)
