"""`retoma check`: load the application, print its pipelines, and check them against unfinished runs."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Annotated, Any
from uuid import UUID

import typer
from rich.text import Text

from retoma.app import App
from retoma.cli import application, printing
from retoma.cli.command_setup import open_client, open_database, read_settings, run_async
from retoma.cli.options import AppLocation, DetailFormat, DetailOutput
from retoma.define.graph import Edge, Graph
from retoma.define.pipeline import Pipeline
from retoma.define.step import Step
from retoma.settings import Settings
from retoma.terminal import escape_text
from retoma.worker.compatibility import Incompatibility, find_incompatibilities


def check(
    app: AppLocation = None,
    shared: Annotated[
        bool,
        typer.Option("--shared", help="Ignore pipelines of other applications that share this database."),
    ] = False,
    offline: Annotated[bool, typer.Option("--offline", help="Do not check unfinished runs.")] = False,
    output: DetailOutput = DetailFormat.TABLE,
) -> None:
    """Check an application against the unfinished runs in the database.

    Prints the pipelines and the runs that this code would break. Exits with 1 if there are any. Changes nothing.

    \b
    Examples:
      retoma check film.py
      retoma check shop.pipelines:app --shared -o json
    """
    settings = read_settings()
    loaded = application.load(app, settings)
    found, titles = ([], {}) if offline else run_async(_find_breaks(loaded, settings, shared))
    if output is DetailFormat.JSON:
        print(printing.to_json(_to_json(loaded, found), indent=2))
    else:
        _print(loaded, found, titles, offline)
    if found:
        raise typer.Exit(1)


async def _find_breaks(app: App, settings: Settings, shared: bool) -> tuple[list[Incompatibility], dict[UUID, str]]:
    """Return the incompatibilities, and the titles of their example runs."""
    async with open_database(settings) as database:
        found = await find_incompatibilities(app, database, shared=shared)
    async with open_client(settings) as client:
        return found, {each.example: (await client.runs.get(each.example)).about for each in found}


def _to_json(app: App, found: Sequence[Incompatibility]) -> dict[str, Any]:
    return {
        "application": app.name,
        "pipelines": [pipeline.graph.to_json() for pipeline in app.pipelines.values()],
        "breaks": [vars(each) for each in found],
    }


def _print(app: App, found: Sequence[Incompatibility], titles: Mapping[UUID, str], offline: bool) -> None:
    console = printing.stdout()
    for pipeline in app.pipelines.values():
        console.print(Text(pipeline.name, style="bold"))
        for line in draw_pipeline(pipeline):
            console.print(f"  {line}")
        console.print()
    for each in found:
        runs = f"{each.runs} unfinished runs" if each.runs != 1 else "1 unfinished run"
        where = f", step {each.step!r}" if each.step else ""
        title = f" “{escape_text(titles[each.example])}”" if titles[each.example] else ""
        console.print(
            Text.assemble(
                ("breaks ", "red"),
                f"{runs} of {each.pipeline!r} (version {each.version}){where}: {each.why}; "
                f"for example{title} {each.example}",
            ),
            soft_wrap=True,
        )
    if not found and not offline:
        console.print(Text.assemble(("ok ", "green"), "no unfinished run would break"))


def draw_pipeline(pipeline: Pipeline) -> Iterator[str]:
    """Yield a line for each step with its dependencies, inputs and queue."""
    steps = [step for step in pipeline.steps.values() if not step.internal]
    width = max((len(step.name) for step in steps), default=0)
    for step in steps:
        inputs = ", ".join([*_format_source(step), *_format_dependencies(pipeline.graph, step), *step.inputs])
        queue = f"  [{step.policy.queue}]" if step.policy.queue != "default" else ""
        yield f"{step.name:<{width}}  {f'<- {inputs}' if inputs else '(no inputs)'}{queue}"


def _format_source(step: Step) -> Iterator[str]:
    if step.each:
        yield f"each of {' x '.join(step.sources)}"


def _format_dependencies(graph: Graph, step: Step) -> Iterator[str]:
    for edge in graph.edges:
        if edge.to_step == step.name and edge.kind != "expand":
            yield _format_dependency(edge)


def _format_dependency(edge: Edge) -> str:
    name = f"all {edge.from_step}" if edge.kind == "join" else edge.from_step
    if edge.parameter is None:
        return f"after {name}"
    return f"{name}?" if edge.optional else name
