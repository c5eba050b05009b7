"""`retoma schedules ...`: rules that start runs at set times."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import asdict
from datetime import UTC, datetime, timedelta
from typing import Annotated, Any
from zoneinfo import ZoneInfo

import typer

from retoma.cli import printing
from retoma.cli.command_setup import client_command, read_settings, run_with_client
from retoma.cli.inputs import read_duration, read_object
from retoma.cli.options import (
    BY,
    AppOption,
    By,
    DetailFormat,
    DetailOutput,
    ListFormat,
    ListOutput,
    OnlyTenant,
    limit_option,
)
from retoma.cli.printing import Column
from retoma.cli.served_applications import load_application, require_application
from retoma.client import Client
from retoma.records import CatchUp, Overlap, Schedule
from retoma.store.tenants import DEFAULT
from retoma.terminal import escape_text

schedules = typer.Typer(name="schedules", no_args_is_help=True, help="Manage schedules, which start runs at set times.")
Name = Annotated[str, typer.Argument(metavar="SCHEDULE", help="The name of the schedule.")]
OfTenant = Annotated[str, typer.Option("--tenant", help="The tenant of the schedule.")]
Cron = Annotated[
    str | None,
    typer.Option("--cron", metavar="RULE", help="Minute, hour, day of the month, month, day of the week: '0 3 * * 1'."),
]
Every = Annotated[str | None, typer.Option("--every", metavar="DURATION", help="An interval such as 15m, 6h or 1d.")]
Zone = Annotated[str | None, typer.Option("--time-zone", help="Of the cron rule and of the placeholders.")]
Inputs = Annotated[
    str | None,
    typer.Option("--inputs", metavar="JSON", help="The inputs, with placeholders: JSON, @file, or - for stdin."),
]
Title = Annotated[str | None, typer.Option("--title", help="What people call it.")]
CatchUpOption = Annotated[
    CatchUp | None, typer.Option("--catch-up", help="What happens to times at which nothing could start.")
]
CatchUpLimit = Annotated[
    int | None, typer.Option("--catch-up-limit", min=1, max=1_000, help="How many runs `all` catches up at most.")
]
Jitter = Annotated[
    str | None, typer.Option("--jitter", metavar="DURATION", help="Start each run up to so much later than due.")
]
OverlapOption = Annotated[
    Overlap | None, typer.Option("--overlap", help="Whether a run starts while the last one is not over.")
]
_COLUMNS = [
    Column("name", "schedule"),
    *map(Column, ("tenant", "pipeline", "rule", "time_zone")),
    Column("next_at", "next", printing.format_time),
    Column("state", formatter=printing.format_state),
    Column("last_due_at", "last", printing.format_time),
    Column("declared_by", "declared by"),
]
_OCCURRENCE_COLUMNS = [
    Column("due_at", "due", printing.format_time),
    Column("run"),
    Column("reason"),
    Column("count", "times"),
    Column("triggered_by", "triggered by"),
    Column("message", max_length=80),
]


@schedules.command("list")
@client_command
async def list_schedules(
    client: Client,
    tenant: OnlyTenant = None,
    pipeline: Annotated[str | None, typer.Option("--pipeline", help="Only this pipeline.")] = None,
    limit: Annotated[int, limit_option("schedules")] = 1_000,
    output: ListOutput = ListFormat.TABLE,
) -> None:
    """List schedules by tenant and name."""
    found = await client.schedules.list(tenant=tenant, pipeline=pipeline, limit=limit)
    printing.print_rows([_describe(each) for each in found], _COLUMNS, output, "no schedules yet")


@schedules.command("show")
@client_command
async def show_schedule(
    client: Client,
    name: Name,
    tenant: OfTenant = DEFAULT,
    limit: Annotated[int, limit_option("past due times")] = 10,
    output: DetailOutput = DetailFormat.TABLE,
) -> None:
    """Show a schedule, when it is due next, and what became of the last due times."""
    schedule = await client.schedules.find(name, tenant=tenant)
    ahead = await client.schedules.list_next(schedule.id)
    past = await client.schedules.list_occurrences(schedule.id, limit=limit)
    if output is DetailFormat.JSON:
        content = _describe(schedule) | {"next": list(ahead), "occurrences": [asdict(each) for each in past]}
        print(printing.to_json(content, indent=2))
        return
    console = printing.stdout()
    for key, value in _describe(schedule).items():
        if value not in (None, "", {}):
            shown = printing.format_time(value) if isinstance(value, datetime) else printing.format_value(value, 400)
            console.print(f"{key}: {shown}", soft_wrap=True)
    _print_times(ahead, schedule.time_zone)
    printing.print_rows(past, _OCCURRENCE_COLUMNS, ListFormat.TABLE, "it has not been due yet")


@schedules.command("create")
def create_schedule(
    name: Name,
    pipeline: Annotated[str, typer.Argument(metavar="PIPELINE", help="The pipeline of its runs.")],
    app: AppOption = None,
    cron: Cron = None,
    every: Every = None,
    time_zone: Zone = None,
    inputs: Inputs = None,
    tenant: OfTenant = DEFAULT,
    title: Title = None,
    catch_up: CatchUpOption = None,
    catch_up_limit: CatchUpLimit = None,
    jitter: Jitter = None,
    overlap: OverlapOption = None,
    by: By = BY,
    output: DetailOutput = DetailFormat.TABLE,
) -> None:
    """Create a schedule, and print when it is due next. Its inputs are checked if the application is known.

    \b
    Examples:
      retoma schedules create nightly report --cron "0 3 * * *" --time-zone America/Sao_Paulo
      retoma schedules create sync import --every 15m --inputs '{"since": "{{ previous_due_at }}"}'
    """
    options = _read_options(every, time_zone, inputs, title, catch_up, catch_up_limit, jitter, overlap)

    async def create(client: Client) -> None:
        created = await client.schedules.create(name, pipeline, cron=cron, tenant=tenant, by=by, **options)
        _print_schedule(created, output)
        if output is DetailFormat.TABLE:
            _print_times(await client.schedules.list_next(created.id), created.time_zone)

    async def find_pipelines(_: Client) -> list[str]:
        return [pipeline]

    run_with_client(create, load_application(app, read_settings(), find_pipelines))


@schedules.command("update")
def update_schedule(
    name: Name,
    app: AppOption = None,
    pipeline: Annotated[str | None, typer.Option("--pipeline", help="The pipeline of its runs.")] = None,
    cron: Cron = None,
    every: Every = None,
    time_zone: Zone = None,
    inputs: Inputs = None,
    tenant: OfTenant = DEFAULT,
    title: Title = None,
    catch_up: CatchUpOption = None,
    catch_up_limit: CatchUpLimit = None,
    jitter: Jitter = None,
    overlap: OverlapOption = None,
    by: By = BY,
    output: DetailOutput = DetailFormat.TABLE,
) -> None:
    """Change what is given. A schedule that the code declares is changed in the code."""
    options = _read_options(every, time_zone, inputs, title, catch_up, catch_up_limit, jitter, overlap)

    async def find_pipelines(client: Client) -> list[str]:
        return [pipeline or (await client.schedules.find(name, tenant=tenant)).pipeline]

    async def update(client: Client) -> None:
        found = await client.schedules.find(name, tenant=tenant)
        changed = await client.schedules.update(found.id, pipeline=pipeline, cron=cron, by=by, **options)
        _print_schedule(changed, output)

    run_with_client(update, load_application(app, read_settings(), find_pipelines))


@schedules.command("pause")
@client_command
async def pause_schedule(
    client: Client, name: Name, tenant: OfTenant = DEFAULT, by: By = BY, output: DetailOutput = DetailFormat.TABLE
) -> None:
    """Start no more runs until the schedule is resumed. Restarts and new releases do not resume it."""
    found = await client.schedules.find(name, tenant=tenant)
    _print_schedule(await client.schedules.pause(found.id, by=by), output)


@schedules.command("resume")
@client_command
async def resume_schedule(
    client: Client, name: Name, tenant: OfTenant = DEFAULT, by: By = BY, output: DetailOutput = DetailFormat.TABLE
) -> None:
    """Start runs again. Times at which it was due during the pause start nothing."""
    found = await client.schedules.find(name, tenant=tenant)
    _print_schedule(await client.schedules.resume(found.id, by=by), output)


@schedules.command("delete")
@client_command
async def delete_schedule(
    client: Client,
    name: Name,
    tenant: OfTenant = DEFAULT,
    yes: Annotated[bool, typer.Option("--yes", "-y", help="Do not ask for confirmation.")] = False,
) -> None:
    """Delete a schedule with its history. The runs that it has started stay."""
    found = await client.schedules.find(name, tenant=tenant)
    if not yes:
        typer.confirm(f"Delete the schedule {name} with its history?", abort=True, err=True)
    await client.schedules.delete(found.id)


@schedules.command("trigger")
def trigger_schedule(
    name: Name,
    app: AppOption = None,
    tenant: OfTenant = DEFAULT,
    key: Annotated[
        str | None, typer.Option("--key", help="Idempotency key: repeating the command with it returns the same run.")
    ] = None,
    by: By = BY,
    output: DetailOutput = DetailFormat.TABLE,
) -> None:
    """Start a run now, and print its ID. When the schedule is due next does not change."""

    async def find_pipelines(client: Client) -> list[str]:
        return [(await client.schedules.find(name, tenant=tenant)).pipeline]

    async def trigger(client: Client) -> None:
        found = await client.schedules.find(name, tenant=tenant)
        started = await client.schedules.trigger(found.id, key=key, by=by)
        printing.print_result({"run": started.id, "created": started.created}, str(started.id), output)

    run_with_client(trigger, require_application(app, read_settings(), find_pipelines))


@schedules.command("preview")
@client_command
async def preview_schedule(
    client: Client,
    cron: Cron = None,
    every: Every = None,
    time_zone: Zone = None,
    limit: Annotated[int, limit_option("times", maximum=100)] = 5,
    output: DetailOutput = DetailFormat.TABLE,
) -> None:
    """Print the next times of a rule.

    \b
    Example:
      retoma schedules preview --cron "0 3 * * 1-5" --time-zone Europe/Lisbon
    """
    zone = time_zone or "UTC"
    times = await client.schedules.preview(cron=cron, every=_read_every(every), time_zone=zone, limit=limit)
    if output is DetailFormat.JSON:
        print(printing.to_json(list(times)))
    else:
        _print_times(times, zone)


def _read_options(
    every: str | None,
    time_zone: str | None,
    inputs: str | None,
    title: str | None,
    catch_up: CatchUp | None,
    catch_up_limit: int | None,
    jitter: str | None,
    overlap: Overlap | None,
) -> dict[str, Any]:
    """Return the options that are given, as the client takes them."""
    options = {
        "every": _read_every(every),
        "time_zone": time_zone,
        "inputs": None if inputs is None else read_object("--inputs", inputs),
        "title": title,
        "catch_up": catch_up,
        "catch_up_limit": catch_up_limit,
        "jitter": None if jitter is None else read_duration("--jitter", jitter),
        "overlap": overlap,
    }
    return {name: value for name, value in options.items() if value is not None}


def _read_every(text: str | None) -> timedelta | None:
    return None if text is None else read_duration("--every", text)


def _describe(schedule: Schedule) -> dict[str, Any]:
    rule = schedule.cron or f"every {printing.format_duration(schedule.every)}"
    return asdict(schedule) | {"rule": rule, "state": "paused" if schedule.is_paused else "active"}


def _print_schedule(schedule: Schedule, output: DetailFormat) -> None:
    row = _describe(schedule)
    if output is DetailFormat.JSON:
        print(printing.to_json(row))
    else:
        printing.print_rows([row], _COLUMNS, ListFormat.TABLE)


def _print_times(times: Iterable[datetime], time_zone: str) -> None:
    """Print each time in the zone of the rule, and in UTC."""
    zone = ZoneInfo(time_zone)
    for each in times:
        here = f"{each.astimezone(zone):%a %Y-%m-%d %H:%M:%S} {escape_text(time_zone)}"
        utc = "" if time_zone == "UTC" else f"  ({each.astimezone(UTC):%Y-%m-%d %H:%M:%S} UTC)"
        printing.stdout().print(f"  {here}{utc}", soft_wrap=True)
