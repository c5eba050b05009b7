"""`retoma start`: start a run."""

from __future__ import annotations

from typing import Annotated, Any
from uuid import UUID

import typer

from retoma.cli import application, printing
from retoma.cli.command_setup import read_settings, run_with_client
from retoma.cli.inputs import read_future, read_input
from retoma.cli.options import DetailFormat, DetailOutput
from retoma.cli.progress import wait_with_bar
from retoma.cli.run_details import errors_to_json
from retoma.cli.served_applications import load_served
from retoma.client import Client
from retoma.define.webhook import Webhook
from retoma.records import Run, WaitReason, describe_recorded_error
from retoma.states import RunState
from retoma.store.tenants import DEFAULT
from retoma.terminal import escape_text


def start(
    pipeline: Annotated[str, typer.Argument(metavar="PIPELINE", help="The pipeline's name.")],
    app: Annotated[
        str | None,
        typer.Argument(
            metavar="APP",
            help="The application: module:name, file.py or file.py:name. Default: RETOMA_APP, `app` in retoma.toml, or "
            "the one that a local server serves.",
            show_default=False,
        ),
    ] = None,
    fields: Annotated[
        list[str] | None,
        typer.Option(
            "-i",
            metavar="KEY=VALUE",
            help="An input field; repeatable. VALUE is text, or JSON as in -i 'sizes=[1, 2]'.",
        ),
    ] = None,
    input_json: Annotated[
        str | None, typer.Option("--input", metavar="JSON", help="The inputs: a JSON object, @file, or - for stdin.")
    ] = None,
    key: Annotated[
        str | None, typer.Option("--key", help="Idempotency key: repeating the command with it returns the same run.")
    ] = None,
    tenant: Annotated[str, typer.Option("--tenant", help="The tenant of the run.")] = DEFAULT,
    run_at: Annotated[
        str | None,
        typer.Option(
            "--run-at", metavar="TIME", help="Start at this ISO time, or after a delay such as +10m (s, m, h, d)."
        ),
    ] = None,
    priority: Annotated[
        int, typer.Option("--priority", help="Higher runs first. One level outweighs ten minutes of waiting.")
    ] = 0,
    webhook: Annotated[
        str | None, typer.Option("--webhook", metavar="URL", help="Send a webhook to this URL when the run ends.")
    ] = None,
    wait: Annotated[
        bool, typer.Option("--wait", help="Wait until the run is over. Exits with 1 unless it completed.")
    ] = False,
    output: DetailOutput = DetailFormat.TABLE,
) -> None:
    """Start a run and print its ID.

    \b
    Examples:
      retoma start film film.py -i title="A storm" -i scenes=12 --wait
      retoma start film --input @brief.json --key order-812
      retoma start film --run-at +10m --tenant my-channel
    """
    settings = read_settings()
    served = None if app or settings.app else load_served(settings, [pipeline])
    loaded = served or application.load(app, settings)
    inputs = read_input(loaded.pipeline(pipeline).inputs, input_json, fields or [])
    at_end = None if webhook is None else Webhook(webhook)

    async def start_and_print(client: Client) -> None:
        started = await client.start(
            pipeline,
            inputs or None,
            key=key,
            tenant=tenant,
            priority=priority,
            run_at=None if run_at is None else read_future(run_at, await client.now()),
            webhook=at_end,
        )
        if output is DetailFormat.JSON and not wait:
            print(printing.to_json({"run": started.id, "created": started.created}))
        elif output is DetailFormat.TABLE:
            print(started.id, flush=True)
            if not started.created:
                printing.stderr().print("the key was used before: this is the existing run")
        if wait:
            await _wait_and_print(client, started.id, pipeline, output)

    run_with_client(start_and_print, loaded)


async def _wait_and_print(client: Client, run: UUID, pipeline: str, output: DetailFormat) -> None:
    for wait in await client.runs.list_waits(run):
        if wait.reason is WaitReason.NO_WORKER:
            printing.stderr().print(escape_text(wait.explanation), soft_wrap=True)
    ended = await wait_with_bar(client, run, pipeline)
    if output is DetailFormat.JSON:
        print(printing.to_json(await _load_outcome(client, ended), indent=2))
    else:
        await _print_outcome(client, ended)
    if ended.state is not RunState.COMPLETED:
        raise typer.Exit(1)


async def _load_outcome(client: Client, run: Run) -> dict[str, Any]:
    return {
        "run": run.id,
        "state": run.state,
        "results": await client.runs.get_results(run.id),
        "errors": errors_to_json(await client.runs.get_errors(run.id)),
    }


async def _print_outcome(client: Client, run: Run) -> None:
    console = printing.stdout()
    took = printing.format_duration(run.ended_at - run.run_at) if run.ended_at else ""
    console.print(printing.format_state(run.state), f"in {took}")
    graph = await client.runs.get_graph(run)
    results = await client.runs.get_results(run.id)
    for step in graph.sinks:
        if step in results:
            console.print(f"  {step}: {printing.format_value(results[step], 400)}")
    if run.state is not RunState.COMPLETED:
        for (step, item), error in (await client.runs.get_errors(run.id, limit=5, with_stack=False)).items():
            suffix = f" of {printing.format_value(item)}" if item else ""
            console.print(
                f"  {step}{suffix}: {error.get('code')}: {printing.format_value(describe_recorded_error(error), 400)}"
            )
