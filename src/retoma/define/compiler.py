"""Compile the steps of a pipeline into its graph, with the checks that need all steps."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from graphlib import CycleError, TopologicalSorter

from retoma.define.bindings import check_same_items
from retoma.define.definition_errors import Location, suggest_name
from retoma.define.dependencies import mark_counted_edges
from retoma.define.graph import CreatedOn, Edge, EdgeKind, Graph, StepShape
from retoma.define.step import Step


def compile_graph(pipeline: str, steps: Mapping[str, Step]) -> Graph:
    if not steps:
        raise Location(pipeline).error("it has no steps; define one with @...step")
    edges = [edge for step in steps.values() for edge in _edges_to(step, steps)]
    order = _sort_steps(pipeline, steps, edges)
    _check_proceed_when(steps, edges)
    sources = {step.name: step.source for step in steps.values() if step.source}
    counted = mark_counted_edges(edges, order, sources)
    return Graph(pipeline, _build_step_shapes(steps, counted), counted, _find_sinks(steps, edges))


def _edges_to(step: Step, steps: Mapping[str, Step]) -> Iterator[Edge]:
    if step.source:
        yield Edge(step.source, step.name, "expand")
    dependencies = [binding for binding in step.bindings if binding.kind in ("step", "items")]
    for binding in dependencies:
        kind = _edge_kind(steps[binding.name], step)
        yield Edge(binding.name, step.name, kind, binding.parameter, binding.position, optional=binding.optional)
    taken = {binding.name for binding in dependencies}
    for name in dict.fromkeys(step.after):
        if name not in taken:
            yield _build_order_edge(name, step, steps)


def _build_order_edge(name: str, step: Step, steps: Mapping[str, Step]) -> Edge:
    location = Location(step.pipeline, step.name)
    visible = [other.name for other in steps.values() if not other.internal]
    if name not in visible:
        raise location.error(f"after= names {name!r}, which is not a step; {suggest_name(name, visible)}")
    if step.each:
        check_same_items(steps[name], step.sources, location)
    return Edge(name, step.name, _edge_kind(steps[name], step))


def _edge_kind(dependency: Step, step: Step) -> EdgeKind:
    if step.each:
        return "item" if dependency.each else "shared"
    return "join" if dependency.each else "value"


def _sort_steps(pipeline: str, steps: Mapping[str, Step], edges: Sequence[Edge]) -> tuple[str, ...]:
    """Return the steps in dependency order. A cycle is an error, as its steps could never run."""
    sorter: TopologicalSorter[str] = TopologicalSorter(dict.fromkeys(steps, ()))
    for edge in edges:
        sorter.add(edge.to_step, edge.from_step)
    try:
        return tuple(sorter.static_order())
    except CycleError as error:
        cycle = " -> ".join(map(repr, error.args[1]))
        raise Location(pipeline).error(f"these steps depend on each other and can never run: {cycle}") from None


def _check_proceed_when(steps: Mapping[str, Step], edges: Sequence[Edge]) -> None:
    joins = {edge.to_step for edge in edges if edge.kind == "join"}
    for step in steps.values():
        if step.proceed_when and step.name not in joins:
            raise Location(step.pipeline, step.name).error(
                "proceed_when= is only for a join, and this step takes no Items[...]"
            )


def _build_step_shapes(steps: Mapping[str, Step], edges: Sequence[Edge]) -> tuple[StepShape, ...]:
    counted: dict[str, list[EdgeKind]] = {name: [] for name in steps}
    for edge in edges:
        if edge.counted:
            counted[edge.to_step].append(edge.kind)
    created_on = {name: _created_on(steps[name], kinds) for name, kinds in counted.items()}
    owners = _find_item_owners(steps, created_on)
    return tuple(
        _build_step_shape(step, len(counted[step.name]), created_on[step.name], owners.get(step.source or ""))
        for step in steps.values()
    )


def _build_step_shape(step: Step, dependency_count: int, created_on: CreatedOn, item_from: str | None) -> StepShape:
    return StepShape(
        name=step.name,
        queue=step.policy.queue,
        priority=step.policy.priority,
        each=step.each,
        source=step.source,
        dependency_count=dependency_count,
        created_on=created_on,
        on_failure=step.policy.on_failure,
        item_from=item_from,
        internal=step.internal,
        pool=step.policy.pool.name if step.policy.pool else None,
        slots=step.policy.slots,
        review=step.review is not None,
        opens_review=step.review is not None and step.when is None,
    )


def _created_on(step: Step, counted: Sequence[EdgeKind]) -> CreatedOn:
    """Create a job with one dependency in the same write that ends it; other jobs must exist before."""
    if step.each:
        return "dependency" if counted == ["item"] else "expansion"
    return "dependency" if counted == ["value"] else "start"


def _find_item_owners(steps: Mapping[str, Step], created_on: Mapping[str, CreatedOn]) -> dict[str, str]:
    """Return for each source the first step whose jobs are created together with its items."""
    owners: dict[str, str] = {}
    for step in steps.values():
        if step.source and created_on[step.name] == "expansion":
            owners.setdefault(step.source, step.name)
    return owners


def _find_sinks(steps: Mapping[str, Step], edges: Sequence[Edge]) -> tuple[str, ...]:
    left = {edge.from_step for edge in edges}
    return tuple(name for name in steps if name not in left)
