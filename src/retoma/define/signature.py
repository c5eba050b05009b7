"""The parameters of a step function: data left of `*`, resources right of it."""

from __future__ import annotations

import inspect
import re
from collections.abc import Callable
from dataclasses import dataclass
from types import SimpleNamespace
from typing import Any, get_type_hints

from retoma.define.definition_errors import Location, suggest_name
from retoma.define.items import Items
from retoma.define.step import Resource

CONTEXT = "ctx"
ITEMS_TEXT = re.compile(r"(\w+\.)*Items\[")
UNUSABLE = {
    inspect.Parameter.POSITIONAL_ONLY: "is positional-only",
    inspect.Parameter.VAR_POSITIONAL: "takes any number of values",
    inspect.Parameter.VAR_KEYWORD: "takes any name",
}


@dataclass(frozen=True)
class Parameter:
    name: str
    annotation: Any
    optional: bool
    default: Any


@dataclass(frozen=True)
class Signature:
    """A missing or unresolvable annotation is Any."""

    data: tuple[Parameter, ...]
    resources: tuple[Resource, ...]
    returns: Any


def read_signature(function: Callable[..., Any], location: Location) -> Signature:
    written = inspect.signature(function)
    parameters = list(written.parameters.values())
    for parameter in parameters:
        _check_kind(parameter, location)
        _check_context(parameter, location)
    return Signature(
        data=tuple(_read_data_parameter(function, one) for one in parameters if one.kind is not one.KEYWORD_ONLY),
        resources=tuple(_read_resource(function, one) for one in parameters if one.kind is one.KEYWORD_ONLY),
        returns=_resolve_annotation(function, written.return_annotation),
    )


def read_condition_parameters(
    when: object, data: tuple[Parameter, ...], location: Location, option: str = "when="
) -> tuple[str, ...]:
    """Return the parameters of a function in this option, all of which must be data parameters of its step."""
    if not callable(when) or inspect.iscoroutinefunction(when):
        raise location.error(f"{option} is {when!r}; pass a plain function of the step's data parameters")
    known = [parameter.name for parameter in data]
    parameters = inspect.signature(when).parameters.values()
    for parameter in parameters:
        _check_kind(parameter, location, of=option)
        if parameter.name not in known:
            raise location.error(
                f"{option} takes {parameter.name!r}, which is not a data parameter of the step; "
                f"{suggest_name(parameter.name, known)}"
            )
    return tuple(parameter.name for parameter in parameters)


def _check_kind(parameter: inspect.Parameter, location: Location, of: str = "the function") -> None:
    if parameter.kind in UNUSABLE:
        raise location.error(
            f"parameter {str(parameter).split(':')[0]!r} of {of} {UNUSABLE[parameter.kind]}; "
            "every parameter must be a single named one, as it is passed by name"
        )


def _check_context(parameter: inspect.Parameter, location: Location) -> None:
    if parameter.name == CONTEXT and parameter.kind is not parameter.KEYWORD_ONLY:
        raise location.error(f"{CONTEXT!r} is not data; put it right of '*' among the function's parameters")


def _read_data_parameter(function: Callable[..., Any], parameter: inspect.Parameter) -> Parameter:
    optional = parameter.default is not parameter.empty
    default = parameter.default if optional else None
    return Parameter(parameter.name, _resolve_annotation(function, parameter.annotation), optional, default)


def _read_resource(function: Callable[..., Any], parameter: inspect.Parameter) -> Resource:
    optional = parameter.default is not parameter.empty
    return Resource(parameter.name, _resolve_annotation(function, parameter.annotation), optional)


def _resolve_annotation(function: Callable[..., Any], annotation: Any) -> Any:
    """Resolve one annotation separately, so an unknown name in it does not affect the checks of others."""
    if annotation is inspect.Parameter.empty:
        return Any
    holder = SimpleNamespace(__annotations__={"it": annotation})
    try:
        return get_type_hints(holder, globalns=getattr(inspect.unwrap(function), "__globals__", {}))["it"]
    except (NameError, AttributeError, TypeError, SyntaxError):
        return Items[Any] if ITEMS_TEXT.match(str(annotation)) else Any
