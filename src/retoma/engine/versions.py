"""Versions: a pipeline's graph as rows that the SQL functions follow, stored when first used."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import replace

from retoma.define.graph import Edge, Graph
from retoma.define.pipeline import Pipeline
from retoma.store import pools, versions
from retoma.store.database import Database
from retoma.store.versions import EdgeRow, ReadRow

# One level of priority is worth ten minutes of waiting, so low priorities do not wait forever.
HEAD_START_PER_PRIORITY = 600_000_000


async def register(database: Database, pipeline: Pipeline) -> int:
    """Return the number of the version with this pipeline's current graph. Store the version if it is new."""
    graph = pipeline.graph
    await pools.declare_pools(database, pipeline.pools)
    number = await versions.find_version(database, graph.pipeline, graph.digest)
    if number is None:
        number = await versions.add_version(
            database,
            pipeline=graph.pipeline,
            digest=graph.digest,
            graph=json.dumps(graph.to_json()),
            sinks=len(find_final_steps(graph)),
            steps=[
                vars(step) | {"step": step.name, "position": position, "head_start": get_head_start(step.priority)}
                for position, step in enumerate(graph.steps)
            ],
            edges=build_edge_rows(graph),
            reads=build_read_rows(graph),
        )
    await versions.set_limits(
        database,
        number,
        stuck_after=pipeline.stuck_after,
        resumes=pipeline.resumes,
        retention=pipeline.retention,
        timeouts={step.name: step.policy.timeout for step in pipeline.steps.values()},
        reviews={
            step.name: json.dumps(step.review.to_json(), sort_keys=True)
            for step in pipeline.steps.values()
            if step.review
        },
    )
    follow_up = None if pipeline.on_rejected is None else await register(database, pipeline.on_rejected)
    await versions.set_on_rejected(database, pipeline.name, follow_up)
    return number


async def load_newer_graphs(database: Database, pipelines: Sequence[str], newest: int) -> dict[int, Graph]:
    """Return the graphs of all versions of these pipelines above the newest known number."""
    found = await versions.list_newer(database, pipelines, newest)
    return {number: Graph.from_json(json.loads(graph)) for number, graph in found}


async def load_graph(database: Database, number: int) -> Graph:
    """Return the graph of a stored version."""
    return Graph.from_json(json.loads(await versions.get_graph(database, number)))


def get_head_start(priority: int) -> int:
    return priority * HEAD_START_PER_PRIORITY


def build_edge_rows(graph: Graph) -> list[EdgeRow]:
    """Return what the end of each step triggers."""
    rows = _EdgeRowBuilder(graph)
    for edge in graph.edges:
        if edge.kind == "expand":
            rows.add_expansion(edge)
        elif edge.counted:
            rows.add_dependency(edge)
    for name in find_final_steps(graph):
        rows.add_end(name)
    return rows.rows


def find_final_steps(graph: Graph) -> list[str]:
    """Return the steps that must end before the run does: sinks, and steps that only items wait for, since there may be
    no items."""
    waited_for = {edge.from_step for edge in graph.edges if edge.kind != "shared"}
    return [step.name for step in graph.steps if step.name not in waited_for]


def build_read_rows(graph: Graph) -> list[ReadRow]:
    """Return the results that the parameters of each step read."""
    what = {"item": "result of the item", "join": "results of all items"}
    return [
        ReadRow(edge.to_step, edge.position, edge.from_step, what.get(edge.kind, "result"))
        for edge in graph.edges
        if edge.position is not None
    ]


class _EdgeRowBuilder:
    def __init__(self, graph: Graph) -> None:
        self.rows: list[EdgeRow] = []
        self._steps = {step.name: step for step in graph.steps}
        self._reads: dict[str, set[str]] = {step.name: set() for step in graph.steps}
        for edge in graph.edges:
            if edge.position is not None:
                self._reads[edge.to_step].add(edge.from_step)

    def add_dependency(self, edge: Edge) -> None:
        optional = edge.optional or edge.parameter is None
        if edge.kind == "shared":
            self._add(edge, "share", optional=optional)
        elif edge.kind == "join":
            # An item without a result never stops the join; a skipped fan-out does.
            self._add(edge, "count", optional=True)
            self._add_stand_in(edge, self.rows[-1], optional)
        else:
            edge_kind = "create" if self._steps[edge.to_step].created_on == "dependency" else "count"
            self._add(edge, edge_kind, optional=optional, same_item=edge.kind == "item")

    def add_expansion(self, edge: Edge) -> None:
        if self._steps[edge.to_step].created_on == "expansion":
            self._add(edge, "expand", optional=False)

    def add_end(self, name: str) -> None:
        step = self._steps[name]
        self.rows.append(EdgeRow(name, "", "end"))
        if step.source is not None:
            self.rows.append(EdgeRow(step.source, "", "end", via=name))

    def _add(self, edge: Edge, edge_kind: str, *, optional: bool, same_item: bool = False) -> None:
        source, target = self._steps[edge.from_step], self._steps[edge.to_step]
        known = {edge.from_step} if edge_kind == "create" else set()
        self.rows.append(
            EdgeRow(
                from_step=source.name,
                to_step=target.name,
                edge_kind=edge_kind,
                same_item=same_item,
                optional=optional,
                self_contained=target.pool is None and self._reads[target.name] <= known,
                queue=target.queue,
                head_start=get_head_start(target.priority - source.priority),
                dependency_count=target.dependency_count,
                pool=target.pool,
                opens_review=target.opens_review,
            )
        )

    def _add_stand_in(self, edge: Edge, items: EdgeRow, optional: bool) -> None:
        """Add a row by which the source of an `each` step counts in place of its items, until they exist."""
        source = self._steps[edge.from_step].source or ""
        self.rows.append(
            replace(items, from_step=source, via=edge.from_step, optional=optional, self_contained=False, head_start=0)
        )
