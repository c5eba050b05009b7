"""Find open runs that the current code cannot continue."""

from __future__ import annotations

import json
from collections.abc import AsyncIterator, Iterable, Iterator, Mapping
from dataclasses import dataclass
from uuid import UUID

from pydantic import ValidationError

from retoma.app import App
from retoma.define.definition_errors import suggest_name
from retoma.define.graph import Graph, StepShape
from retoma.define.pipeline import Pipeline
from retoma.engine import versions as shapes
from retoma.errors import DefinitionError
from retoma.store import versions
from retoma.store.database import Database
from retoma.worker.step_call import StepCall

MAX_INPUTS = 1_000


@dataclass(frozen=True)
class Incompatibility:
    """Open runs of one version that the current code cannot finish. `step` is empty if no single step is the reason."""

    pipeline: str
    version: int
    step: str
    why: str
    runs: int
    example: UUID


async def find_incompatibilities(app: App, database: Database, *, shared: bool = False) -> list[Incompatibility]:
    """Return all incompatibilities. With `shared`, ignore pipelines that the application does not define."""
    found: dict[tuple[int, str, str], Incompatibility] = {}
    graphs: dict[int, Graph] = {}
    needed: dict[int, set[str]] = {}
    for row in await versions.list_open_work(database):
        number = row["version"]
        if number not in graphs:
            graphs[number] = await shapes.load_graph(database, number)
        graph = graphs[number]
        steps = find_remaining_steps(graph, row["steps"])
        needed.setdefault(number, set()).update(steps)
        for step, why in _find_reasons(app, graph, steps, shared):
            so_far = found.get((number, step, why))
            runs = row["runs"] + (so_far.runs if so_far else 0)
            found[number, step, why] = Incompatibility(graph.pipeline, number, step, why, runs, row["example"])
    rejected = [
        each
        for number, steps in needed.items()
        async for each in _find_rejected_inputs(app, database, number, graphs, steps)
    ]
    return [*found.values(), *rejected]


def find_remaining_steps(graph: Graph, unfinished: Iterable[str]) -> set[str]:
    """Return the steps with unfinished jobs, and all steps downstream of them."""
    needed = set(unfinished)
    while after := {edge.to_step for edge in graph.edges if edge.from_step in needed} - needed:
        needed |= after
    return needed


def _find_reasons(app: App, graph: Graph, steps: set[str], shared: bool) -> Iterator[tuple[str, str]]:
    application = app.find_owner(graph.pipeline)
    if application is None:
        if not shared:
            yield "", f"the application no longer defines this pipeline; {suggest_name(graph.pipeline, app.pipelines)}"
        return
    pipeline = application.own_pipelines[graph.pipeline]
    for shape in graph.steps:
        if shape.name in steps and (why := _explain_incompatibility(pipeline, graph, shape, application.resources)):
            yield shape.name, why


def _explain_incompatibility(
    pipeline: Pipeline, graph: Graph, shape: StepShape, resources: Mapping[str, object]
) -> str | None:
    step = pipeline.steps.get(shape.name)
    if step is None:
        visible = [name for name, other in pipeline.steps.items() if not other.internal]
        return f"the step is no longer defined; {suggest_name(shape.name, visible)}"
    if step.source != shape.source:
        return f"it ran {_describe_repetition(shape.source)} and now runs {_describe_repetition(step.source)}"
    try:
        StepCall(pipeline, step, graph, resources)
    except DefinitionError as error:
        return str(error)
    return None


def _describe_repetition(source: str | None) -> str:
    return "once" if source is None else f"for each of {source!r}"


async def _find_rejected_inputs(
    app: App, database: Database, version: int, graphs: Mapping[int, Graph], steps: set[str]
) -> AsyncIterator[Incompatibility]:
    """Yield one incompatibility for the newest open runs of a version with inputs that the current model rejects."""
    pipeline = app.pipelines.get(graphs[version].pipeline)
    if pipeline is None or pipeline.inputs is None:
        return
    if not any(pipeline.steps[name].inputs for name in steps if name in pipeline.steps):
        return
    rejected: list[tuple[UUID, str]] = []
    for row in await versions.list_open_inputs(database, version, MAX_INPUTS):
        try:
            pipeline.inputs.model_validate(json.loads(row["input"]))
        except ValidationError as error:
            first = error.errors()[0]
            rejected.append((row["id"], f"{'.'.join(map(str, first['loc']))}: {first['msg']}"))
    if rejected:
        example, message = rejected[0]
        why = f"the current input model rejects the inputs of these runs ({message})"
        yield Incompatibility(pipeline.name, version, "", why, len(rejected), example)
