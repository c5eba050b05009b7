"""`retoma start`: start a run."""

from __future__ import annotations

from datetime import datetime
from typing import Annotated, Any
from uuid import UUID

import typer

from retoma.app import App
from retoma.cli import application, output
from retoma.cli.inputs import read_input, read_moment
from retoma.cli.options import Shape, ShortFormat
from retoma.cli.progress import until_over
from retoma.cli.served_applications import load_served
from retoma.cli.session import in_loop, opened_client, read_settings
from retoma.client import Client
from retoma.define.webhook import Webhook
from retoma.engine.tenants import DEFAULT
from retoma.records import Run, WaitReason, describe_recorded
from retoma.settings import Settings
from retoma.states import RunState
from retoma.store import clock


def start(
    pipeline: Annotated[str, typer.Argument(metavar="PIPELINE", help="The pipeline's name.")],
    app: Annotated[
        str | None, typer.Argument(metavar="APP", help="The application, as for `retoma worker`.", show_default=False)
    ] = None,
    fields: Annotated[
        list[str] | None, typer.Option("-i", metavar="KEY=VALUE", help="One field of the input; may be repeated.")
    ] = None,
    whole: Annotated[
        str | None, typer.Option("--input", metavar="JSON", help="The input as JSON, or @file, or - for stdin.")
    ] = None,
    key: Annotated[
        str | None, typer.Option("--key", help="The same key and input give the same run, however often it is sent.")
    ] = None,
    tenant: Annotated[str, typer.Option("--tenant", help="Whose run it is.")] = DEFAULT,
    run_at: Annotated[
        str | None, typer.Option("--run-at", metavar="TIME", help="Begin then: an ISO time, or +10m (s, m, h, d).")
    ] = None,
    priority: Annotated[int, typer.Option("--priority", help="Each level is worth ten minutes of waiting.")] = 0,
    webhook: Annotated[
        str | None, typer.Option("--webhook", metavar="URL", help="Tell this URL of the run's end.")
    ] = None,
    wait: Annotated[bool, typer.Option("--wait", help="Stay until it is over; exit with 0 if it completed.")] = False,
    how: Shape = ShortFormat.TABLE,
) -> None:
    """Start a run, and print its id.

    \b
    retoma start film film.py -i title="A storm" -i scenes=12 --wait
    retoma start film --input @brief.json --key order-812
    retoma start film --run-at +10m --tenant my-channel
    """
    settings = read_settings()
    served = None if app or settings.app else load_served(settings, [pipeline])
    loaded = served or application.load(app, settings)
    given = read_input(loaded.pipeline(pipeline).inputs, whole, fields or [])
    hook = None if webhook is None else Webhook(webhook)
    options = {"key": key, "tenant": tenant, "priority": priority, "webhook": hook}
    in_loop(_start(loaded, settings, pipeline, given, options, run_at, wait, how))


async def _start(
    app: App,
    settings: Settings,
    pipeline: str,
    given: dict[str, Any],
    options: dict[str, Any],
    run_at: str | None,
    wait: bool,
    how: ShortFormat,
) -> None:
    async with opened_client(settings, app) as client:
        begin = await _moment(client, run_at)
        started = await client.start(pipeline, given or None, run_at=begin, **options)
        if how is ShortFormat.JSON and not wait:
            print(output.as_json({"run": started.id, "created": started.created}))
        elif how is ShortFormat.TABLE:
            print(started.id, flush=True)
            if not started.created:
                output.err().print("this key was used before; it is the same run")
        if wait:
            await _finish(client, started.id, pipeline, how)


async def _moment(client: Client, run_at: str | None) -> datetime | None:
    return None if run_at is None else read_moment(run_at, await clock.now(client.database))


async def _finish(client: Client, run: UUID, pipeline: str, how: ShortFormat) -> None:
    for wait in await client.waits(run):
        if wait.reason is WaitReason.NO_WORKER:
            output.err().print(f"no live worker serves queue {wait.queue!r}: start one with `retoma worker APP`")
    ended = await until_over(client, run, pipeline)
    if how is ShortFormat.JSON:
        print(output.as_json(await _outcome(client, ended), indent=2))
    else:
        await _say_outcome(client, ended)
    if ended.state is not RunState.COMPLETED:
        raise typer.Exit(1)


async def _outcome(client: Client, run: Run) -> dict[str, Any]:
    return {
        "run": run.id,
        "state": run.state,
        "results": await client.results(run.id),
        "errors": [
            {"step": step, "item": item} | error for (step, item), error in (await client.errors(run.id)).items()
        ],
    }


async def _say_outcome(client: Client, run: Run) -> None:
    console = output.out()
    took = output.duration(run.ended_at - run.run_at) if run.ended_at else ""
    console.print(output.state(run.state), f"in {took}")
    graph = await client.graph(run)
    results = await client.results(run.id)
    for step in graph.sinks:
        if step in results:
            console.print(f"  {step}: {output.value(results[step], 400)}")
    if run.state is not RunState.COMPLETED:
        for (step, item), error in (await client.errors(run.id, limit=5, with_stack=False)).items():
            of = f" of {output.value(item)}" if item else ""
            console.print(f"  {step}{of}: {error.get('code')}: {output.value(describe_recorded(error), 400)}")
