"""`retoma runs rerun`, `edit`, `fork` and `diff`: rerun or correct work, and compare revisions."""

from __future__ import annotations

from collections.abc import Sequence
from difflib import unified_diff
from typing import Annotated
from uuid import UUID

import typer

from retoma.app import App
from retoma.cli import printing
from retoma.cli.command_setup import async_command, open_client, read_settings, run_with_client
from retoma.cli.inputs import read_fields, read_json
from retoma.cli.lookups import find_run
from retoma.cli.options import BY, ActionKey, AppOption, DetailFormat, DetailOutput, Item, Items, RunId
from retoma.cli.runs import print_revision, runs
from retoma.cli.served_applications import require_application
from retoma.client import Client
from retoma.errors import NotFound
from retoma.records import StepRevision
from retoma.states import JobState
from retoma.terminal import escape_text

MAX_REVISIONS = 1_000


@runs.command()
def rerun(
    run: RunId,
    steps: Annotated[list[str] | None, typer.Argument(metavar="STEP", help="A step to rerun; repeatable.")] = None,
    step: Annotated[str | None, typer.Option("--step", help="Rerun only the failed jobs of this step.")] = None,
    item: Items = None,
    group: Annotated[str | None, typer.Option("--group", help="Rerun the steps of this group.")] = None,
    from_step: Annotated[
        str | None, typer.Option("--from-step", metavar="STEP", help="Rerun this step and all of its dependents.")
    ] = None,
    stale: Annotated[
        bool, typer.Option("--stale", help="Rerun results that were computed from outdated inputs.")
    ] = False,
    no_downstream: Annotated[
        bool, typer.Option("--no-downstream", help="Do not rerun dependents; mark them as stale.")
    ] = False,
    no_reuse: Annotated[
        bool, typer.Option("--no-reuse", help="Rerun dependents even if their inputs are the same.")
    ] = False,
    reason: Annotated[str | None, typer.Option("--reason", help="The reason, recorded with the revision.")] = None,
    key: ActionKey = None,
    app: AppOption = None,
    output: DetailOutput = DetailFormat.TABLE,
) -> None:
    """Rerun steps and their dependents. Without a step, rerun failed jobs.

    Other steps keep their results. --group needs the application.

    \b
    Examples:
      retoma runs rerun 0199a3
      retoma runs rerun 0199a3 --step label --item invoice-812.pdf
      retoma runs rerun 0199a3 narration --reason "new voice"
      retoma runs rerun 0199a3 --from-step script
      retoma runs rerun 0199a3 --stale
    """
    is_failed_only = not (steps or group or from_step or stale)
    if is_failed_only and (no_downstream or no_reuse or reason):
        raise typer.BadParameter(
            "--no-downstream, --no-reuse and --reason do not apply to failed jobs: name a step to rerun"
        )
    if step is not None and not is_failed_only:
        raise typer.BadParameter("--step selects failed jobs: name the steps to rerun as arguments, without --step")

    async def rerun_and_print(client: Client) -> None:
        found = await find_run(client, run)
        if is_failed_only:
            revision = await client.runs.rerun_failed(found, step=step, items=item, by=BY, key=key)
        else:
            revision = await client.runs.rerun(
                found,
                *(steps or ()),
                items=item,
                group=group,
                from_step=from_step,
                stale=stale,
                downstream=not no_downstream,
                reuse=not no_reuse,
                reason=reason,
                by=BY,
                key=key,
            )
        print_revision(found, revision, output)

    run_with_client(rerun_and_print, _load_application(app, run) if group else None)


@runs.command()
def edit(
    run: RunId,
    step: Annotated[str, typer.Argument(metavar="STEP", help="The step to edit.")],
    value: Annotated[str, typer.Argument(metavar="VALUE", help="The new result: JSON, @file, or - for stdin.")],
    item: Item = "",
    no_downstream: Annotated[
        bool, typer.Option("--no-downstream", help="Do not rerun dependent steps; mark them as stale.")
    ] = False,
    key: ActionKey = None,
    app: AppOption = None,
    output: DetailOutput = DetailFormat.TABLE,
) -> None:
    """Replace a step's result and rerun its dependents.

    Needs the application, which validates the result.

    \b
    Examples:
      retoma runs edit 0199a3 script @script.json
      retoma runs edit 0199a3 picture '"a calm sea"' --item intro --no-downstream
    """
    result, downstream = read_json("VALUE", value), not no_downstream

    async def edit_and_print(client: Client) -> None:
        found = await find_run(client, run)
        revision = await client.runs.edit(found, step, result, item=item, downstream=downstream, by=BY, key=key)
        print_revision(found, revision, output)

    run_with_client(edit_and_print, _load_application(app, run))


@runs.command()
def fork(
    run: RunId,
    fields: Annotated[
        list[str] | None, typer.Argument(metavar="KEY=VALUE", help="An input field to change; repeatable.")
    ] = None,
    key: ActionKey = None,
    app: AppOption = None,
    output: DetailOutput = DetailFormat.TABLE,
) -> None:
    """Fork a finished run: start a new run with changed inputs.

    The new run reuses the results that do not depend on the changes. Prints its ID. Needs the application.

    \b
    Example:
      retoma runs fork 0199a3 tone=calm --app film.py
    """
    loaded = _load_application(app, run)

    async def fork_and_print(client: Client) -> None:
        found = await client.runs.get(await find_run(client, run))
        changes = read_fields("fork", loaded.pipeline(found.pipeline).inputs, fields or [])
        started = await client.runs.fork(found.id, changes, by=BY, key=key)
        printing.print_result({"run": started.id, "forked_from": found.id}, str(started.id), output)

    run_with_client(fork_and_print, loaded)


@runs.command()
@async_command
async def diff(
    run: RunId,
    step: Annotated[str, typer.Argument(metavar="STEP", help="The step to compare.")],
    revisions: Annotated[
        list[int] | None, typer.Argument(metavar="REV REV", help="Two revisions to compare. Default: the last two.")
    ] = None,
    item: Item = "",
) -> None:
    """Show a unified diff of two revisions of a result.

    \b
    Examples:
      retoma runs diff 0199a3 script
      retoma runs diff 0199a3 picture 1 3 --item intro
    """
    if revisions and len(revisions) != 2:
        raise typer.BadParameter("name two revisions, or none to compare the last two")
    async with open_client(read_settings()) as client:
        previous, newer = await _find_two_revisions(client, await find_run(client, run), step, item, revisions or [])
    lines = diff_revisions(previous, newer)
    for line in lines:
        print(line)
    if not lines:
        printing.stderr().print(f"revisions {previous.revision} and {newer.revision} are identical")


def _load_application(location: str | None, text: str) -> App:
    """Load the application that defines the pipeline of this run."""

    async def find_pipelines(client: Client) -> list[str]:
        return [(await client.runs.get(await find_run(client, text))).pipeline]

    return require_application(location, read_settings(), find_pipelines)


async def _check_step(client: Client, run: UUID, step: str) -> None:
    graph = await client.runs.get_graph(await client.runs.get(run))
    steps = [each.name for each in graph.steps if not each.internal]
    if step not in steps:
        raise NotFound(f"run {run} has no step {escape_text(step)!r}; it has {', '.join(map(repr, steps))}")


async def _find_two_revisions(
    client: Client, run: UUID, step: str, item: str, revisions: Sequence[int]
) -> tuple[StepRevision, StepRevision]:
    await _check_step(client, run, step)
    found = await client.runs.get_step_history(run, step, item, limit=MAX_REVISIONS)
    with_result = {each.revision: each for each in found if each.state is JobState.SUCCEEDED}
    wanted = list(revisions) or sorted(with_result)[-2:]
    missing = [number for number in wanted if number not in with_result]
    if missing or len(wanted) < 2:
        job = f"{step} of {item}" if item else step
        known = ", ".join(map(str, sorted(with_result))) or "none"
        raise NotFound(
            f"cannot compare two revisions: {escape_text(job)} of run {run} has results in revisions: {known}"
        )
    return with_result[wanted[0]], with_result[wanted[1]]


def diff_revisions(previous: StepRevision, newer: StepRevision) -> list[str]:
    """Return a unified diff of their JSON, empty if they are identical."""
    before, after = (printing.to_json(each.output, indent=2).splitlines() for each in (previous, newer))
    names = (f"revision {previous.revision}", f"revision {newer.revision}")
    return list(unified_diff(before, after, *names, lineterm=""))
