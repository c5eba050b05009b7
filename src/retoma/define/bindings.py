"""Where the data parameters of a step come from: inputs, steps defined above it, and its items."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from retoma.define.mistakes import Place, quoted, suggestion
from retoma.define.signature import Parameter
from retoma.define.step import Binding, Step
from retoma.define.types import compatible, element_of, items_element, name_of


@dataclass(frozen=True)
class Scope:
    """What one step can name: input fields with their annotations, the steps above, its own sources."""

    place: Place
    inputs: Mapping[str, Any]
    steps: Mapping[str, Step]
    sources: tuple[str, ...] = ()

    @property
    def known(self) -> list[str]:
        return [*self.inputs, *self.steps]

    @property
    def elements(self) -> dict[str, Any]:
        """The type of each source's elements; None where the source gives no list."""
        return {source: self.element(source) for source in self.sources}

    def element(self, source: str) -> Any:
        given = self.inputs[source] if source in self.inputs else self.steps[source].returns
        return element_of(given)


def bind(parameters: Sequence[Parameter], scope: Scope) -> tuple[Binding, ...]:
    _check_self_reference(parameters, scope)
    unknown = [parameter.name for parameter in parameters if parameter.name not in scope.known]
    items = _item_sources(unknown, scope)
    return tuple(_bound(parameter, position, items, scope) for position, parameter in enumerate(parameters))


def check_sources(scope: Scope) -> None:
    """Every source gives a flat list."""
    for source in scope.sources:
        if source in scope.steps and scope.steps[source].each:
            raise scope.place.mistake(
                f"each cannot go over {source!r}, which is an each step itself; "
                "return a flat list from a plain step and go over that"
            )
        if scope.element(source) is None:
            raise scope.place.mistake(f"each goes over {source!r}, which does not give a list")


def _check_self_reference(parameters: Sequence[Parameter], scope: Scope) -> None:
    for parameter in parameters:
        if parameter.name == scope.place.step:
            raise scope.place.mistake(f"parameter {parameter.name!r} names the step itself")


def _item_sources(unknown: list[str], scope: Scope) -> dict[str, str]:
    """Which source's element each parameter is that names no input and no step."""
    if len(unknown) > len(scope.sources):
        raise _unknown(unknown, scope)
    singular = {source.removesuffix("s"): source for source in scope.sources}
    if set(unknown) <= singular.keys():
        return {name: singular[name] for name in unknown}
    if len(unknown) == len(scope.sources):
        return dict(zip(unknown, scope.sources, strict=True))
    raise scope.place.mistake(
        f"it is not clear which of {quoted(scope.sources)} {quoted(unknown)} is an element of; "
        "take one parameter for each of them, in their order"
    )


def _unknown(unknown: list[str], scope: Scope) -> Exception:
    if not scope.sources:
        name = unknown[0]
        return scope.place.mistake(
            f"parameter {name!r} names no input and no step above; {suggestion(name, scope.known)}"
        )
    hints = "; ".join(f"{name!r}: {suggestion(name, scope.known)}" for name in unknown)
    return scope.place.mistake(
        f"parameters {quoted(unknown)} name no input and no step above, and each over "
        f"{quoted(scope.sources)} gives only {len(scope.sources)} of them; {hints}"
    )


def _bound(parameter: Parameter, position: int, items: Mapping[str, str], scope: Scope) -> Binding:
    if parameter.name in scope.inputs:
        return _bound_to_input(parameter, position, scope)
    if parameter.name in scope.steps:
        return _bound_to_step(parameter, position, scope)
    return _bound_to_item(parameter, position, items[parameter.name], scope)


def _bound_to_input(parameter: Parameter, position: int, scope: Scope) -> Binding:
    if items_element(parameter.annotation) is not None:
        raise scope.place.mistake(f"parameter {parameter.name!r} is an input; Items[...] is for each steps")
    _check_type(parameter, f"input {parameter.name!r} is", scope.inputs[parameter.name], scope)
    return _binding(parameter, "input", parameter.name, position)


def _bound_to_step(parameter: Parameter, position: int, scope: Scope) -> Binding:
    need = scope.steps[parameter.name]
    element = items_element(parameter.annotation)
    _check_join(need, element is not None, scope)
    if element is None:
        _check_type(parameter, f"step {need.name!r} gives", need.returns, scope)
        return _binding(parameter, "step", need.name, position)
    _check_type(parameter, f"each step {need.name!r} gives", need.returns, scope, wanted=element)
    return _binding(parameter, "items", need.name, position)


def _bound_to_item(parameter: Parameter, position: int, source: str, scope: Scope) -> Binding:
    _check_type(parameter, f"an element of {source!r} is", scope.element(source), scope)
    part = scope.sources.index(source) if len(scope.sources) > 1 else None
    return _binding(parameter, "item", source, position, part)


def _binding(parameter: Parameter, kind: Any, name: str, position: int, part: int | None = None) -> Binding:
    return Binding(
        parameter=parameter.name,
        kind=kind,
        name=name,
        position=position,
        annotation=parameter.annotation,
        optional=parameter.optional,
        default=parameter.default,
        part=part,
    )


def _check_join(need: Step, as_items: bool, scope: Scope) -> None:
    if scope.sources:
        _check_item_need(need, as_items, scope)
    elif need.each and not as_items:
        raise scope.place.mistake(
            f"parameter {need.name!r} is an each step with a result per item; annotate it as Items[...]"
        )
    elif as_items and not need.each:
        raise scope.place.mistake(
            f"parameter {need.name!r} is a plain step with one result; Items[...] is for each steps"
        )


def _check_item_need(need: Step, as_items: bool, scope: Scope) -> None:
    if as_items:
        raise scope.place.mistake(f"an each step cannot take Items[...] of {need.name!r}; {join_first(need.name)}")
    check_same_items(need, scope.sources, scope.place)


def check_same_items(need: Step, sources: tuple[str, ...], place: Place) -> None:
    if need.each and need.sources != sources:
        raise place.mistake(
            f"{need.name!r} is an each step over {quoted(need.sources)}, not over {quoted(sources)}; "
            f"{join_first(need.name)}"
        )


def join_first(name: str) -> str:
    return f"join it first, in a plain step that takes `{name}: Items[...]`, and need that step"


def _check_type(parameter: Parameter, giver: str, given: Any, scope: Scope, wanted: Any = None) -> None:
    wanted = parameter.annotation if wanted is None else wanted
    if not compatible(given, wanted):
        raise scope.place.mistake(f"parameter {parameter.name!r} wants {name_of(wanted)}, but {giver} {name_of(given)}")
