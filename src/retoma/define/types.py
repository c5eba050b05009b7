"""Check whether the result of one step fits the parameter of another. If in doubt, it does."""

from __future__ import annotations

import types
from collections.abc import Awaitable, Coroutine, Sequence
from inspect import isclass
from typing import Annotated, Any, Literal, NewType, Union, get_args, get_origin, is_typeddict

from retoma.define.items import Items

WIDENING = {int: (float, complex), float: (complex,)}
COLLECTIONS = ("builtins", "collections", "collections.abc")


def is_compatible(actual: Any, expected: Any) -> bool:
    """Return False only if a value of type `actual` can certainly not be an `expected`."""
    actuals, expecteds = _list_members(actual), _list_members(expected)
    return any(_fits(one, other) for one in actuals for other in expecteds)


def get_element_type(annotation: Any) -> Any:
    """Return the element type of a list, Any if it is unknown, None if the annotation is certainly not a list."""
    elements = [
        element for member in _list_members(annotation) if (element := _get_member_element_type(member)) is not None
    ]
    return elements[0] if elements else None


def get_items_element_type(annotation: Any) -> Any:
    """Return the T of an annotation `Items[T]`, or None if it is not one."""
    for member in _list_members(annotation):
        if _get_origin(member) is Items:
            return next(iter(get_args(member)), Any)
    return None


def format_annotation(annotation: Any) -> str:
    return annotation.__name__ if isclass(annotation) and not get_args(annotation) else str(annotation)


def _list_members(annotation: Any) -> tuple[Any, ...]:
    """Return the alternatives of an annotation, without wrappers."""
    plain = _unwrap(annotation)
    if get_origin(plain) in (Union, types.UnionType):
        return tuple(one for member in get_args(plain) for one in _list_members(member))
    if get_origin(plain) is Literal:
        return tuple({type(value) for value in get_args(plain)})
    return (plain,)


def _unwrap(annotation: Any) -> Any:
    if annotation is None:
        return type(None)
    if isinstance(annotation, NewType):
        return _unwrap(annotation.__supertype__)
    if get_origin(annotation) is Annotated:
        return _unwrap(get_args(annotation)[0])
    if get_origin(annotation) in (Awaitable, Coroutine):
        return _unwrap(get_args(annotation)[-1])
    return annotation


def _fits(actual: Any, expected: Any) -> bool:
    one, other = _get_origin(actual), _get_origin(expected)
    if one is None or other is None:
        return True
    if not _is_subclass(one, other):
        return False
    if one is not other and one.__module__ not in COLLECTIONS:
        return True
    return _arguments_fit(_get_arguments(actual), _get_arguments(expected))


def _arguments_fit(actual: tuple[Any, ...], expected: tuple[Any, ...]) -> bool:
    if len(actual) != len(expected):
        return True
    return all(is_compatible(one, other) for one, other in zip(actual, expected, strict=True))


def _get_arguments(annotation: Any) -> tuple[Any, ...]:
    return tuple(argument for argument in get_args(annotation) if argument is not Ellipsis)


def _get_origin(annotation: Any) -> type | None:
    """Return the class of an annotation, or None if it is not certain."""
    origin = get_origin(annotation) or annotation
    if is_typeddict(origin):
        return dict
    return origin if isclass(origin) and origin is not Any else None


def _is_subclass(actual: type, expected: type) -> bool:
    if getattr(expected, "_is_protocol", False):
        return True
    wider_types = next((wider for narrow, wider in WIDENING.items() if issubclass(actual, narrow)), ())
    return any(issubclass(one, expected) for one in (actual, *wider_types))


def _get_member_element_type(annotation: Any) -> Any:
    origin = _get_origin(annotation)
    if origin is None:
        return Any
    if not issubclass(origin, Sequence) or issubclass(origin, str | bytes):
        return None
    arguments = set(_get_arguments(annotation))
    return arguments.pop() if len(arguments) == 1 else Any
