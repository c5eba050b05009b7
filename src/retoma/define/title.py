"""The title of a run: what people call it, made from its inputs when it is started."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from inspect import isclass, iscoroutinefunction, signature
from string import Formatter
from typing import Any

from pydantic import BaseModel

from retoma.define.definition_errors import Location, suggest_name
from retoma.terminal import remove_unsafe, shorten

Title = str | Callable[[Any], str | None]
"""A format string over the fields of the inputs, or a function of the inputs."""
MAX_TITLE_LENGTH = 200


def check_title(title: Title | None, inputs: type[BaseModel] | None, location: Location) -> Title | None:
    """Return the title after checking it, so that its mistakes are found at import."""
    if isinstance(title, str):
        for path in _list_paths(title, location):
            _check_path(path, inputs, location)
    elif title is not None:
        _check_function(title, inputs, location)
    return title


def format_title(title: Title | None, inputs: BaseModel | None) -> str | None:
    """Return the title of a run with these inputs, cleaned and cut, or None if it is empty.

    Raise whatever the function raises, and TypeError if it does not return text.
    """
    if title is None:
        return None
    text = title.format_map(_FieldValues(inputs)) if isinstance(title, str) else title(inputs)
    if text is None:
        return None
    if not isinstance(text, str):
        raise TypeError(f"a title is a str or None, and the function returned {type(text).__name__}")
    return _clean(text) or None


class _FieldValues:
    """The fields that a format string names. A field without a value is empty text."""

    def __init__(self, inputs: BaseModel | None) -> None:
        self._inputs = inputs

    def __getitem__(self, name: str) -> Any:
        value = getattr(self._inputs, name)
        return "" if value is None else value


def _clean(text: str) -> str:
    """Return the text on one line, without characters that act on a terminal or change the order of letters."""
    text = " ".join(text[: 4 * MAX_TITLE_LENGTH].split())
    return shorten(text if text.isprintable() else remove_unsafe(text).strip(), MAX_TITLE_LENGTH)


def _list_paths(text: str, location: Location) -> Iterator[str]:
    """Return what a format string names, such as `topic` or `file.name`, also within format specifications."""
    try:
        parts = list(Formatter().parse(text))
    except ValueError as error:
        raise location.error(f"title= is {text!r}, which is not a format string: {error}") from None
    for _, path, specification, conversion in parts:
        if path is None:
            continue
        if conversion not in (None, "r", "s", "a"):
            raise location.error(f"title= is {text!r}; the conversion '!{conversion}' is not one of !s, !r and !a")
        yield path
        yield from _list_paths(specification or "", location)


def _check_path(path: str, inputs: type[BaseModel] | None, location: Location) -> None:
    if inputs is None:
        raise location.error(f"title= names the field {path!r}, and the pipeline has no inputs: give a plain text")
    kind: Any = inputs
    for part in path.split("."):
        if not isclass(kind) or not issubclass(kind, BaseModel):
            return
        name, index, _ = part.partition("[")
        known = [*kind.model_fields, *kind.model_computed_fields]
        if name not in known:
            raise location.error(f"title= names {name!r}, no field of {kind.__name__}; {suggest_name(name, known)}")
        kind = kind.model_fields[name].annotation if not index and name in kind.model_fields else None


def _check_function(function: object, inputs: type[BaseModel] | None, location: Location) -> None:
    if not callable(function) or iscoroutinefunction(function):
        raise location.error(f"title= is {function!r}; give a format string, or a plain function of the inputs")
    if inputs is None:
        raise location.error("title= is a function of the inputs, and the pipeline has none: give a plain text")
    try:
        signature(function).bind(None)
    except TypeError:
        raise location.error(
            f"title= is {function!r}; give a function that takes the inputs and nothing else"
        ) from None
