"""What a person typed, as JSON again."""

from __future__ import annotations

import json
import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from typing import Any

from retoma.server.json_shape import check_json
from retoma.server.pages.typed.field import MISSING, NAME, Field, Wrong, is_emptied, typed_in
from retoma.server.problems import Problem


def read(fields: Sequence[Field], given: Mapping[str, str]) -> tuple[Any, dict[str, Wrong]]:
    """What was typed, as JSON; and by name of the field what cannot be that."""
    value: dict[str, Any] = {}
    wrong: dict[str, Wrong] = {}
    for field in fields:
        try:
            value[field.key or NAME] = _entries(field, given, wrong) if field.entries else _typed(field, given)
        except Wrong as error:
            wrong[field.name] = error
    kept = {key: each for key, each in value.items() if each is not MISSING}
    return (kept.get(NAME) if any(field.key is None for field in fields) else kept), wrong


def filled(fields: Iterable[Field], given: Mapping[str, str], wrong: Mapping[str, str]) -> list[Field]:
    """The form as a person left it, with what is wrong at each field."""
    return [
        replace(
            field,
            typed=typed_in(field, given),
            wrong=wrong.get(field.name, ""),
            entries=tuple(tuple(filled(entry, given, wrong)) for entry in field.entries),
        )
        for field in fields
    ]


def read_json(text: str) -> Any:
    """Raise Wrong if it is no JSON, or nested too deeply to be one of ours."""
    try:
        check_json(text.encode())
        return json.loads(text, parse_constant=_refused)
    except json.JSONDecodeError as error:
        raise Wrong("wrong json at", line=error.lineno, column=error.colno) from None
    except (Problem, ValueError, RecursionError):
        raise Wrong("wrong json") from None


def _entries(field: Field, given: Mapping[str, str], wrong: dict[str, Wrong]) -> list[Any]:
    """What was typed into each, but for those that are empty; what is wrong with one is added to `wrong`."""
    found = [read(entry, given) for entry in field.entries if not is_emptied(entry, given)]
    for _, each in found:
        wrong.update(each)
    return [value for value, _ in found]


def _typed(field: Field, given: Mapping[str, str]) -> Any:
    if field.kind == "hidden":
        return field.standing
    text = typed_in(field, given).replace("\r\n", "\n")
    if field.kind == "yes":
        return text == "yes"
    if not text.strip() and field.nullable:
        return None
    if not text.strip() and field.has_default and field.kind in ("whole", "number", "json", "choice", "pairs"):
        return MISSING
    match field.kind:
        case "lines":
            return [line.strip() for line in text.split("\n") if line.strip()]
        case "pairs":
            return dict(_pair(line) for line in text.split("\n") if line.strip())
        case "whole":
            return _number(text, int)
        case "number":
            return _number(text, float)
        case "maybe":
            return text == "yes"
        case "json":
            return read_json(text)
        case _:
            return text


def _pair(line: str) -> tuple[str, str]:
    name, colon, text = line.partition(":")
    if not (name.strip() and colon and text.strip()):
        raise Wrong("wrong pair", line=line.strip()[:40])
    return name.strip(), text.strip()


def _number(text: str, kind: type[int] | type[float]) -> int | float:
    try:
        number = kind(text.strip().replace(",", ".") if kind is float else text.strip())
    except ValueError:
        raise Wrong("wrong whole" if kind is int else "wrong number") from None
    if isinstance(number, float) and not math.isfinite(number):
        raise Wrong("wrong number")
    return number


def _refused(name: str) -> Any:
    raise ValueError(f"{name} is no JSON")
