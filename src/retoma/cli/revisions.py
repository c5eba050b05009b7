"""`retoma runs rerun`, `edit`, `fork` and `diff`: make work anew or put it right, and see what came of it."""

from __future__ import annotations

from collections.abc import Sequence
from difflib import unified_diff
from typing import Annotated, Any
from uuid import UUID

import typer

from retoma.app import App
from retoma.cli import output
from retoma.cli.inputs import read_fields, read_json
from retoma.cli.options import AppOption, Shape, ShortFormat
from retoma.cli.runs import ActKey, RunId, found_run, say_revision
from retoma.cli.served_applications import require_application
from retoma.cli.session import in_loop, opened_client, read_settings
from retoma.client import Client
from retoma.errors import NotFound
from retoma.records import Made, Revision
from retoma.states import JobState
from retoma.terminal import clean

BY = "command line"
MOST_REVISIONS = 1_000


def rerun(
    run: RunId,
    steps: Annotated[
        list[str] | None, typer.Argument(metavar="STEP", help="A step to make anew; may be repeated.")
    ] = None,
    step: Annotated[str | None, typer.Option("--step", help="Only what failed of this step.")] = None,
    item: Annotated[list[str] | None, typer.Option("--item", help="Only this item; may be repeated.")] = None,
    group: Annotated[str | None, typer.Option("--group", help="The steps of this group.")] = None,
    after: Annotated[
        str | None, typer.Option("--from", metavar="STEP", help="This step and every one that depends on it.")
    ] = None,
    stale: Annotated[bool, typer.Option("--stale", help="What was made of something no longer current.")] = False,
    alone: Annotated[bool, typer.Option("--alone", help="Leave what depends on it as it is, and stale.")] = False,
    fresh: Annotated[bool, typer.Option("--fresh", help="Let nothing that depends on it keep its result.")] = False,
    why: Annotated[str | None, typer.Option("--why", help="Kept with the revision.")] = None,
    key: ActKey = None,
    app: AppOption = None,
    how: Shape = ShortFormat.TABLE,
) -> None:
    """Make work anew, and what depends on it; the rest keeps its results. Without a step: what failed.

    A group is known to the application, which is found as for `retoma runs edit`.

    \b
    retoma runs rerun 0199a3
    retoma runs rerun 0199a3 --step label --item invoice-812.pdf
    retoma runs rerun 0199a3 narration --why "new voice"
    retoma runs rerun 0199a3 --from script
    retoma runs rerun 0199a3 --stale
    """
    if not (steps or group or after or stale):
        if alone or fresh or why:
            raise typer.BadParameter("--alone, --fresh and --why need what is to be made anew: name a step")
        in_loop(_rerun_failed(run, step, item, key, how))
        return
    if step is not None:
        raise typer.BadParameter("--step is for what failed: name what is to be made anew without it")
    asked = {"items": item, "group": group, "after": after, "stale": stale, "alone": alone, "fresh": fresh, "why": why}
    asked["key"] = key
    known = _application(app, run) if group else None
    in_loop(_rerun(known, run, steps or [], asked, how))


def edit(
    run: RunId,
    step: Annotated[str, typer.Argument(metavar="STEP", help="The step whose result is put right.")],
    value: Annotated[str, typer.Argument(metavar="VALUE", help="The result, as JSON; or @file, or - for stdin.")],
    item: Annotated[str, typer.Option("--item", help="Of this item.")] = "",
    stay: Annotated[bool, typer.Option("--stay", help="Leave what depends on it as it is, and stale.")] = False,
    key: ActKey = None,
    app: AppOption = None,
    how: Shape = ShortFormat.TABLE,
) -> None:
    """Put a result of your own in place of a step's, and have made anew what depends on it.

    The application says what the step gives: --app, RETOMA_APP or retoma.toml, or a server that serves it with this
    RETOMA_HOME.

    \b
    retoma runs edit 0199a3 script @script.json
    retoma runs edit 0199a3 picture '"a calm sea"' --item intro --stay
    """
    given = {"value": read_json("VALUE", value), "item": item, "and_continue": not stay, "key": key}
    in_loop(_edit(_application(app, run), run, step, given, how))


def fork(
    run: RunId,
    fields: Annotated[
        list[str] | None, typer.Argument(metavar="KEY=VALUE", help="A field of the input that is to be another.")
    ] = None,
    key: ActKey = None,
    app: AppOption = None,
    how: Shape = ShortFormat.TABLE,
) -> None:
    """Start a run with a changed input that shares the results of one that is over, and print its id.

    \b
    retoma runs fork 0199a3 tone=calm --app film.py
    """
    in_loop(_fork(_application(app, run), run, fields or [], key, how))


def diff(
    run: RunId,
    step: Annotated[str, typer.Argument(metavar="STEP", help="The step whose results are compared.")],
    revisions: Annotated[
        list[int] | None, typer.Argument(metavar="REV REV", help="Two revisions. Default: the last two.")
    ] = None,
    item: Annotated[str, typer.Option("--item", help="Of this item.")] = "",
) -> None:
    """How a result differs between two revisions, line by line of its JSON.

    \b
    retoma runs diff 0199a3 script
    retoma runs diff 0199a3 picture 1 3 --item intro
    """
    if revisions and len(revisions) != 2:
        raise typer.BadParameter("give two revisions, or none for the last two")
    in_loop(_diff(run, step, item, revisions or []))


def _application(place: str | None, text: str) -> App:
    """Load the application that defines the pipeline of this run."""

    async def find_pipelines(client: Client) -> list[str]:
        return [(await client.show(await found_run(client, text))).pipeline]

    return require_application(place, read_settings(), find_pipelines)


async def _rerun_failed(
    text: str, step: str | None, items: list[str] | None, key: str | None, how: ShortFormat
) -> None:
    async with opened_client(read_settings()) as client:
        run = await found_run(client, text)
        say_revision(run, await client.rerun_failed(run, step=step, items=items, by=BY, key=key), how)


async def _rerun(app: App | None, text: str, steps: Sequence[str], asked: dict[str, Any], how: ShortFormat) -> None:
    async with opened_client(read_settings(), app) as client:
        run = await found_run(client, text)
        made: Revision = await client.rerun(run, *steps, **asked, by=BY)
        say_revision(run, made, how)


async def _edit(app: App, text: str, step: str, given: dict[str, Any], how: ShortFormat) -> None:
    async with opened_client(read_settings(), app) as client:
        run = await found_run(client, text)
        say_revision(run, await client.edit(run, step, **given, by=BY), how)


async def _fork(app: App, text: str, fields: Sequence[str], key: str | None, how: ShortFormat) -> None:
    async with opened_client(read_settings(), app) as client:
        run = await client.show(await found_run(client, text))
        changes = read_fields("fork", app.pipeline(run.pipeline).inputs, fields)
        started = await client.fork(run.id, changes, by=BY, key=key)
    if how is ShortFormat.JSON:
        print(output.as_json({"run": started.id, "forked_from": run.id}))
    else:
        print(started.id)


async def _diff(text: str, step: str, item: str, revisions: Sequence[int]) -> None:
    async with opened_client(read_settings()) as client:
        run = await found_run(client, text)
        former, newer = await _two(client, run, step, item, revisions)
    lines = difference(former, newer)
    for line in lines:
        print(line)
    if not lines:
        output.err().print(f"revisions {former.revision} and {newer.revision} are the same")


async def _check_step(client: Client, run: UUID, step: str) -> None:
    graph = await client.graph(await client.show(run))
    steps = [each.name for each in graph.steps if not each.hidden]
    if step not in steps:
        raise NotFound(f"run {run} has no step {clean(step)!r}; it has {', '.join(map(repr, steps))}")


async def _two(client: Client, run: UUID, step: str, item: str, revisions: Sequence[int]) -> tuple[Made, Made]:
    await _check_step(client, run, step)
    found = await client.made(run, step, item, limit=MOST_REVISIONS)
    with_result = {made.revision: made for made in found if made.state is JobState.SUCCEEDED}
    wanted = list(revisions) or sorted(with_result)[-2:]
    missing = [number for number in wanted if number not in with_result]
    if missing or len(wanted) < 2:
        what = f"{step} of {item}" if item else step
        known = ", ".join(map(str, sorted(with_result))) or "none"
        raise NotFound(f"{clean(what)} of run {run} has results of these revisions: {known}; two are compared")
    return with_result[wanted[0]], with_result[wanted[1]]


def difference(former: Made, newer: Made) -> list[str]:
    """As `diff -u` would tell it of their JSON; nothing if they are the same."""
    before, after = (output.as_json(made.output, indent=2).splitlines() for made in (former, newer))
    names = (f"revision {former.revision}", f"revision {newer.revision}")
    return list(unified_diff(before, after, *names, lineterm=""))
