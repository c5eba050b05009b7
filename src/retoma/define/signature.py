"""A step function's parameters, as written: data left of `*`, machinery right of it."""

from __future__ import annotations

import inspect
import re
from collections.abc import Callable
from dataclasses import dataclass
from types import SimpleNamespace
from typing import Any, get_type_hints

from retoma.define.items import Items
from retoma.define.mistakes import Place, suggestion
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
    """Annotations that are missing or cannot be resolved are Any."""

    data: tuple[Parameter, ...]
    resources: tuple[Resource, ...]
    returns: Any


def read_signature(function: Callable[..., Any], place: Place) -> Signature:
    written = inspect.signature(function)
    parameters = list(written.parameters.values())
    for parameter in parameters:
        _check_kind(parameter, place)
        _check_context(parameter, place)
    return Signature(
        data=tuple(_data(function, one) for one in parameters if one.kind is not one.KEYWORD_ONLY),
        resources=tuple(_resource(function, one) for one in parameters if one.kind is one.KEYWORD_ONLY),
        returns=_resolved(function, written.return_annotation),
    )


def condition_parameters(when: object, data: tuple[Parameter, ...], place: Place) -> tuple[str, ...]:
    """The names that a `when=` takes, all of them data parameters of its step."""
    if not callable(when) or inspect.iscoroutinefunction(when):
        raise place.mistake(f"when= is {when!r}; give a plain function of the step's data parameters")
    known = [parameter.name for parameter in data]
    parameters = inspect.signature(when).parameters.values()
    for parameter in parameters:
        _check_kind(parameter, place, of="when=")
        if parameter.name not in known:
            raise place.mistake(
                f"when= takes {parameter.name!r}, which is no data parameter of the step; "
                f"{suggestion(parameter.name, known)}"
            )
    return tuple(parameter.name for parameter in parameters)


def _check_kind(parameter: inspect.Parameter, place: Place, of: str = "the function") -> None:
    if parameter.kind in UNUSABLE:
        raise place.mistake(
            f"parameter {str(parameter).split(':')[0]!r} of {of} {UNUSABLE[parameter.kind]}; "
            "every parameter needs a name of its own, by which it is called"
        )


def _check_context(parameter: inspect.Parameter, place: Place) -> None:
    if parameter.name == CONTEXT and parameter.kind is not parameter.KEYWORD_ONLY:
        raise place.mistake(f"{CONTEXT!r} is no data; put it right of '*' among the function's parameters")


def _data(function: Callable[..., Any], parameter: inspect.Parameter) -> Parameter:
    optional = parameter.default is not parameter.empty
    default = parameter.default if optional else None
    return Parameter(parameter.name, _resolved(function, parameter.annotation), optional, default)


def _resource(function: Callable[..., Any], parameter: inspect.Parameter) -> Resource:
    optional = parameter.default is not parameter.empty
    return Resource(parameter.name, _resolved(function, parameter.annotation), optional)


def _resolved(function: Callable[..., Any], annotation: Any) -> Any:
    """One annotation, resolved apart from the others so that one unknown name spoils no other check."""
    if annotation is inspect.Parameter.empty:
        return Any
    holder = SimpleNamespace(__annotations__={"it": annotation})
    try:
        return get_type_hints(holder, globalns=getattr(inspect.unwrap(function), "__globals__", {}))["it"]
    except (NameError, AttributeError, TypeError, SyntaxError):
        return Items[Any] if ITEMS_TEXT.match(str(annotation)) else Any
