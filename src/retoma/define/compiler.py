"""From the steps of a pipeline to its graph, with the checks that need all of them."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from graphlib import CycleError, TopologicalSorter

from retoma.define.bindings import check_same_items
from retoma.define.graph import Born, Edge, EdgeKind, Graph, StepShape
from retoma.define.mistakes import Place, suggestion
from retoma.define.needs import count_needs
from retoma.define.step import Step


def compile_graph(pipeline: str, steps: Mapping[str, Step]) -> Graph:
    if not steps:
        raise Place(pipeline).mistake("it has no steps; define one with @...step")
    edges = [edge for step in steps.values() for edge in _edges_to(step, steps)]
    order = _order(pipeline, steps, edges)
    _check_proceed_when(steps, edges)
    sources = {step.name: step.source for step in steps.values() if step.source}
    counted = count_needs(edges, order, sources)
    return Graph(pipeline, _shapes(steps, counted), counted, _sinks(steps, edges))


def _edges_to(step: Step, steps: Mapping[str, Step]) -> Iterator[Edge]:
    if step.source:
        yield Edge(step.source, step.name, "expand")
    needs = [binding for binding in step.bindings if binding.kind in ("step", "items")]
    for binding in needs:
        kind = _kind(steps[binding.name], step)
        yield Edge(binding.name, step.name, kind, binding.parameter, binding.position, optional=binding.optional)
    taken = {binding.name for binding in needs}
    for name in dict.fromkeys(step.after):
        if name not in taken:
            yield _edge_after(name, step, steps)


def _edge_after(name: str, step: Step, steps: Mapping[str, Step]) -> Edge:
    place = Place(step.pipeline, step.name)
    visible = [other.name for other in steps.values() if not other.hidden]
    if name not in visible:
        raise place.mistake(f"after= names {name!r}, which is no step; {suggestion(name, visible)}")
    if step.each:
        check_same_items(steps[name], step.sources, place)
    return Edge(name, step.name, _kind(steps[name], step))


def _kind(need: Step, step: Step) -> EdgeKind:
    if step.each:
        return "item" if need.each else "shared"
    return "join" if need.each else "value"


def _order(pipeline: str, steps: Mapping[str, Step], edges: Sequence[Edge]) -> tuple[str, ...]:
    """Every step after its needs. A cycle is an error, as its steps could never run."""
    sorter: TopologicalSorter[str] = TopologicalSorter(dict.fromkeys(steps, ()))
    for edge in edges:
        sorter.add(edge.to_step, edge.from_step)
    try:
        return tuple(sorter.static_order())
    except CycleError as error:
        circle = " -> ".join(map(repr, error.args[1]))
        raise Place(pipeline).mistake(f"these steps wait for each other and can never run: {circle}") from None


def _check_proceed_when(steps: Mapping[str, Step], edges: Sequence[Edge]) -> None:
    joins = {edge.to_step for edge in edges if edge.kind == "join"}
    for step in steps.values():
        if step.proceed_when and step.name not in joins:
            raise Place(step.pipeline, step.name).mistake(
                "proceed_when= is for a join, and this step takes no Items[...]"
            )


def _shapes(steps: Mapping[str, Step], edges: Sequence[Edge]) -> tuple[StepShape, ...]:
    counted: dict[str, list[EdgeKind]] = {name: [] for name in steps}
    for edge in edges:
        if edge.counted:
            counted[edge.to_step].append(edge.kind)
    born = {name: _born(steps[name], kinds) for name, kinds in counted.items()}
    keepers = _item_keepers(steps, born)
    return tuple(
        _shape(step, len(counted[step.name]), born[step.name], keepers.get(step.source or ""))
        for step in steps.values()
    )


def _shape(step: Step, needs: int, born: Born, item_from: str | None) -> StepShape:
    return StepShape(
        name=step.name,
        queue="" if step.review and step.when is None else step.policy.queue,
        priority=step.policy.priority,
        each=step.each,
        source=step.source,
        needs=needs,
        born=born,
        on_failure=step.policy.on_failure,
        item_from=item_from,
        hidden=step.hidden,
        pool=step.policy.pool.name if step.policy.pool else None,
        slots=step.policy.slots,
        review=step.review is not None,
    )


def _born(step: Step, counted: Sequence[EdgeKind]) -> Born:
    """A job with one need is made when that need ends, by the same write; others must be there before."""
    if step.each:
        return "need" if counted == ["item"] else "expansion"
    return "need" if counted == ["value"] else "start"


def _item_keepers(steps: Mapping[str, Step], born: Mapping[str, Born]) -> dict[str, str]:
    """For each source, the first step whose jobs are made with its items."""
    keepers: dict[str, str] = {}
    for step in steps.values():
        if step.source and born[step.name] == "expansion":
            keepers.setdefault(step.source, step.name)
    return keepers


def _sinks(steps: Mapping[str, Step], edges: Sequence[Edge]) -> tuple[str, ...]:
    left = {edge.from_step for edge in edges}
    return tuple(name for name in steps if name not in left)
