"""Bind the data parameters of a step to inputs, to steps defined above it, and to its items."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from retoma.define.definition_errors import Location, quote_names, suggest_name
from retoma.define.signature import Parameter
from retoma.define.step import Binding, Step
from retoma.define.types import format_annotation, get_element_type, get_items_element_type, is_compatible


@dataclass(frozen=True)
class Scope:
    """The names that one step can use: input fields with their annotations, the steps above, and its own sources."""

    location: Location
    inputs: Mapping[str, Any]
    steps: Mapping[str, Step]
    sources: tuple[str, ...] = ()

    @property
    def known_names(self) -> list[str]:
        return [*self.inputs, *self.steps]

    @property
    def element_types(self) -> dict[str, Any]:
        """Return the type of each source's elements; None if the source does not return a list."""
        return {source: self.get_element_type(source) for source in self.sources}

    def get_element_type(self, source: str) -> Any:
        annotation = self.inputs[source] if source in self.inputs else self.steps[source].returns
        return get_element_type(annotation)


def bind_parameters(parameters: Sequence[Parameter], scope: Scope) -> tuple[Binding, ...]:
    _check_self_reference(parameters, scope)
    unknown = [parameter.name for parameter in parameters if parameter.name not in scope.known_names]
    items = _item_sources(unknown, scope)
    return tuple(_bind_parameter(parameter, position, items, scope) for position, parameter in enumerate(parameters))


def check_sources(scope: Scope) -> None:
    """Raise DefinitionError unless every source returns a flat list."""
    for source in scope.sources:
        if source in scope.steps and scope.steps[source].each:
            raise scope.location.error(
                f"each cannot iterate over {source!r}, which is itself an each step; "
                "return a flat list from a plain step and iterate over that"
            )
        if scope.get_element_type(source) is None:
            raise scope.location.error(f"each goes over {source!r}, which does not return a list")


def _check_self_reference(parameters: Sequence[Parameter], scope: Scope) -> None:
    for parameter in parameters:
        if parameter.name == scope.location.step:
            raise scope.location.error(f"parameter {parameter.name!r} names the step itself")


def _item_sources(unknown: list[str], scope: Scope) -> dict[str, str]:
    """Return the source for each parameter that names neither an input nor a step: the parameter is its element."""
    if len(unknown) > len(scope.sources):
        raise _unknown_parameters_error(unknown, scope)
    singular = {source.removesuffix("s"): source for source in scope.sources}
    if set(unknown) <= singular.keys():
        return {name: singular[name] for name in unknown}
    if len(unknown) == len(scope.sources):
        return dict(zip(unknown, scope.sources, strict=True))
    raise scope.location.error(
        f"it is ambiguous which of {quote_names(scope.sources)} {quote_names(unknown)} is an element of; "
        "take one parameter for each of them, in the same order"
    )


def _unknown_parameters_error(unknown: list[str], scope: Scope) -> Exception:
    if not scope.sources:
        name = unknown[0]
        return scope.location.error(
            f"parameter {name!r} names neither an input nor a step above; {suggest_name(name, scope.known_names)}"
        )
    wrong = [name for name in unknown if not {f"{name}s", f"{name}es"} & set(scope.sources)]  # the others are elements
    hints = "; ".join(f"{name!r}: {suggest_name(name, scope.known_names)}" for name in wrong or unknown)
    return scope.location.error(
        f"parameters {quote_names(unknown)} name neither an input nor a step above, and each over "
        f"{quote_names(scope.sources)} provides only {len(scope.sources)} of them; {hints}"
    )


def _bind_parameter(parameter: Parameter, position: int, items: Mapping[str, str], scope: Scope) -> Binding:
    if parameter.name in scope.inputs:
        return _bind_to_input(parameter, position, scope)
    if parameter.name in scope.steps:
        return _bind_to_step(parameter, position, scope)
    return _bind_to_item(parameter, position, items[parameter.name], scope)


def _bind_to_input(parameter: Parameter, position: int, scope: Scope) -> Binding:
    if get_items_element_type(parameter.annotation) is not None:
        raise scope.location.error(f"parameter {parameter.name!r} is an input; Items[...] is only for each steps")
    _check_type(parameter, f"input {parameter.name!r} is", scope.inputs[parameter.name], scope)
    return _build_binding(parameter, "input", parameter.name, position)


def _bind_to_step(parameter: Parameter, position: int, scope: Scope) -> Binding:
    dependency = scope.steps[parameter.name]
    element = get_items_element_type(parameter.annotation)
    _check_join(dependency, element is not None, scope)
    if element is None:
        _check_type(parameter, f"step {dependency.name!r} returns", dependency.returns, scope)
        return _build_binding(parameter, "step", dependency.name, position)
    _check_type(parameter, f"each step {dependency.name!r} returns", dependency.returns, scope, expected=element)
    return _build_binding(parameter, "items", dependency.name, position)


def _bind_to_item(parameter: Parameter, position: int, source: str, scope: Scope) -> Binding:
    _check_type(parameter, f"an element of {source!r} is", scope.get_element_type(source), scope)
    part = scope.sources.index(source) if len(scope.sources) > 1 else None
    return _build_binding(parameter, "item", source, position, part)


def _build_binding(parameter: Parameter, kind: Any, name: str, position: int, part: int | None = None) -> Binding:
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


def _check_join(dependency: Step, as_items: bool, scope: Scope) -> None:
    if scope.sources:
        _check_item_dependency(dependency, as_items, scope)
    elif dependency.each and not as_items:
        raise scope.location.error(
            f"parameter {dependency.name!r} is an each step with a result per item; annotate it as Items[...]"
        )
    elif as_items and not dependency.each:
        raise scope.location.error(
            f"parameter {dependency.name!r} is a plain step with one result; Items[...] is only for each steps"
        )


def _check_item_dependency(dependency: Step, as_items: bool, scope: Scope) -> None:
    if as_items:
        raise scope.location.error(
            f"an each step cannot take Items[...] of {dependency.name!r}; {suggest_join(dependency.name)}"
        )
    check_same_items(dependency, scope.sources, scope.location)


def check_same_items(dependency: Step, sources: tuple[str, ...], location: Location) -> None:
    if dependency.each and dependency.sources != sources:
        raise location.error(
            f"{dependency.name!r} is an each step over {quote_names(dependency.sources)}, not over "
            f"{quote_names(sources)}; "
            f"{suggest_join(dependency.name)}"
        )


def suggest_join(name: str) -> str:
    return f"join it first in a plain step that takes `{name}: Items[...]`, and depend on that step"


def _check_type(parameter: Parameter, subject: str, actual: Any, scope: Scope, expected: Any = None) -> None:
    expected = parameter.annotation if expected is None else expected
    if not is_compatible(actual, expected):
        raise scope.location.error(
            f"parameter {parameter.name!r} expects {format_annotation(expected)}, but {subject} "
            f"{format_annotation(actual)}"
        )
