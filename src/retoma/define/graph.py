"""The compiled graph of a pipeline, as a version stores it and the engine follows it. It holds no code."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from dataclasses import asdict, dataclass
from functools import cached_property
from hashlib import sha256
from typing import Any, Literal

from retoma.define.step import OnFailure

EdgeKind = Literal["value", "item", "join", "shared", "expand"]
CreatedOn = Literal["start", "dependency", "expansion"]


@dataclass(frozen=True)
class StepShape:
    """One step of a graph.

    source: the plain step whose result is the list of items; each steps only.
    dependency_count: the number of counted edges to this step; a job is ready once that many have ended.
    created_on: what creates its jobs: the start of the run, the end of its only dependency, or the end of its source.
    item_from: the step over the same source whose rows hold the item itself; each steps only.
    internal: created by Retoma, not by the user.
    review: a person does it.
    opens_review: its jobs wait for that person as soon as they are ready; with `when=`, a worker decides that first.
    """

    name: str
    queue: str
    priority: int
    each: bool
    source: str | None
    dependency_count: int
    created_on: CreatedOn
    on_failure: OnFailure
    item_from: str | None
    internal: bool = False
    pool: str | None = None
    slots: int = 1
    review: bool = False
    opens_review: bool = False


@dataclass(frozen=True)
class Edge:
    """A dependency of one step on another.

    kind: value is plain to plain, shared is plain to each, item is each to each for the same item, join is
    each to plain, and expand leads from the source to an each step.
    counted: False if another dependency of the same step implies this one. Expand edges are never counted.
    parameter, position: the data parameter that takes the result; None for `after=` and expand.
    optional: the parameter has a default for a missing result.
    """

    from_step: str
    to_step: str
    kind: EdgeKind
    parameter: str | None = None
    position: int | None = None
    counted: bool = False
    optional: bool = False


@dataclass(frozen=True)
class Graph:
    """Steps and edges in definition order. Sinks are the steps that no other step depends on."""

    pipeline: str
    steps: tuple[StepShape, ...]
    edges: tuple[Edge, ...]
    sinks: tuple[str, ...]

    @cached_property
    def names(self) -> list[str]:
        """Return the names of the steps that users defined."""
        return [step.name for step in self.steps if not step.internal]

    @cached_property
    def digest(self) -> str:
        """Return a digest that is the same in every process and differs whenever the graph differs."""
        canonical = json.dumps(self.to_json(), sort_keys=True, separators=(",", ":"))
        return sha256(canonical.encode()).hexdigest()

    def ancestors(self, steps: Iterable[str]) -> set[str]:
        """Return all direct and indirect dependencies of these steps."""
        dependencies = {edge.from_step for edge in self.edges if edge.to_step in set(steps)}
        return dependencies | self.ancestors(dependencies) if dependencies else dependencies

    def to_json(self) -> dict[str, Any]:
        return {
            "pipeline": self.pipeline,
            "steps": [asdict(step) for step in self.steps],
            "edges": [asdict(edge) for edge in self.edges],
            "sinks": list(self.sinks),
        }

    @classmethod
    def from_json(cls, document: Mapping[str, Any]) -> Graph:
        return cls(
            pipeline=document["pipeline"],
            steps=tuple(StepShape(**step) for step in document["steps"]),
            edges=tuple(Edge(**edge) for edge in document["edges"]),
            sinks=tuple(document["sinks"]),
        )
