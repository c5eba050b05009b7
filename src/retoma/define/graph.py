"""The compiled shape of a pipeline: what a version stores and the engine follows. It holds no code."""

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
    needs: how many counted edges lead here; a job is ready when that many have ended.
    born: what makes its jobs: the start of the run, the end of its only need, or the end of its source.
    item_from: the step over the same source whose rows keep the item itself; each steps only.
    review: a person does it; without a queue, its jobs wait for that person as soon as they are ready.
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


@dataclass(frozen=True)
class Edge:
    """One step waiting for another.

    kind: value is plain to plain, shared is plain to each, item is each to each for the same item, join is
    each to plain, and expand leads from the source to an each step.
    counted: false where another need of the same step implies this one. Expand edges are never counted.
    parameter, position: the data parameter that takes the result; None for `after=` and expand.
    optional: the parameter has a default for when there is no result.
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
    """Steps and edges in the order of their definition. Sinks are the steps that nothing waits for."""

    pipeline: str
    steps: tuple[StepShape, ...]
    edges: tuple[Edge, ...]
    sinks: tuple[str, ...]

    @cached_property
    def names(self) -> list[str]:
        """Of the steps that users wrote."""
        return [step.name for step in self.steps if not step.internal]

    @cached_property
    def digest(self) -> str:
        """The same in every process, and another one whenever the shape is another."""
        canonical = json.dumps(self.to_json(), sort_keys=True, separators=(",", ":"))
        return sha256(canonical.encode()).hexdigest()

    def ancestors(self, steps: Iterable[str]) -> set[str]:
        """All steps that these wait for, directly or not."""
        needs = {edge.from_step for edge in self.edges if edge.to_step in set(steps)}
        return needs | self.ancestors(needs) if needs else needs

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
