"""Pipelines by their shape alone, for tests that care for nothing else."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from inspect import Parameter, Signature
from typing import Any

from pydantic import BaseModel

from retoma.define.graph import Edge, Graph, StepShape
from retoma.define.items import Items
from retoma.define.pipeline import Pipeline


class Brief(BaseModel):
    topic: str
    tone: str = "plain"
    words: int = 800
    languages: list[str] = []


class Document(BaseModel):
    sha256: str
    pages: int = 1


def make_function(name: str, *needs: str, joins: Iterable[str] = ()) -> Callable[..., Any]:
    """A function with these parameters, as if written by hand."""

    def function() -> None: ...

    parameters = [Parameter(need, Parameter.POSITIONAL_OR_KEYWORD) for need in needs]
    parameters += [Parameter(join, Parameter.POSITIONAL_OR_KEYWORD, annotation=Items[Any]) for join in joins]
    function.__name__ = name
    function.__signature__ = Signature(parameters)  # type: ignore[attr-defined]
    return function


def make_chain(**steps: list[str]) -> Pipeline:
    """Plain steps with their needs."""
    pipeline = Pipeline("shape")
    for name, needs in steps.items():
        pipeline.step(make_function(name, *needs))
    return pipeline


def get_step(graph: Graph, name: str) -> StepShape:
    return next(step for step in graph.steps if step.name == name)


def get_edge(graph: Graph, from_step: str, to_step: str) -> Edge:
    return next(edge for edge in graph.edges if (edge.from_step, edge.to_step) == (from_step, to_step))


def list_counted_dependencies(graph: Graph, name: str) -> set[str]:
    return {edge.from_step for edge in graph.edges if edge.to_step == name and edge.counted}
