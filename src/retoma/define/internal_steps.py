"""Internal steps, which turn every source of items into the result of a plain step."""

from __future__ import annotations

from dataclasses import dataclass
from itertools import product
from typing import Any

from retoma.define.step import Binding, Policy, Step, source_name


@dataclass(frozen=True)
class InputList:
    """Returns one input unchanged."""

    name: str

    def __call__(self, **inputs: Any) -> Any:
        return inputs[self.name]


@dataclass(frozen=True)
class Product:
    """Returns every combination of the elements of several lists; the last list varies fastest."""

    sources: tuple[str, ...]

    def __call__(self, **lists: Any) -> list[list[Any]]:
        return [list(item) for item in product(*(lists[source] for source in self.sources))]


def build_input_step(pipeline: str, name: str, annotation: Any, policy: Policy) -> Step:
    return Step(
        pipeline=pipeline,
        name=name,
        function=InputList(name),
        bindings=(Binding(name, "input", name, 0, annotation),),
        resources=(),
        returns=annotation,
        policy=policy,
        internal=True,
    )


def build_product_step(pipeline: str, sources: tuple[str, ...], policy: Policy) -> Step:
    return Step(
        pipeline=pipeline,
        name=source_name(sources),
        function=Product(sources),
        bindings=tuple(Binding(name, "step", name, position) for position, name in enumerate(sources)),
        resources=(),
        returns=list[list[Any]],
        policy=policy,
        internal=True,
    )
