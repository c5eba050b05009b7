"""Parse a submitted form to JSON."""

from __future__ import annotations

import json
import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from datetime import UTC, datetime, tzinfo
from typing import Any

from retoma.server.json_limits import check_json_limits, check_surrogates
from retoma.server.pages.forms.field import (
    MISSING,
    NOT_A_MOMENT,
    NOT_A_NUMBER,
    NOT_WHOLE,
    ROOT_NAME,
    Field,
    FieldError,
    Kind,
    get_text,
    is_empty_entry,
)
from retoma.server.problems import Problem
from retoma.translations import N_

OPTIONAL_KINDS: tuple[Kind, ...] = ("whole", "number", "json", "choice", "pairs", "moment")  # left out if empty


def parse_form(fields: Sequence[Field], submitted: Mapping[str, str]) -> tuple[Any, dict[str, FieldError]]:
    """Return the submitted value as JSON, and the errors by field name."""
    value: dict[str, Any] = {}
    errors: dict[str, FieldError] = {}
    for field in fields:
        try:
            value[field.key or ROOT_NAME] = (
                _parse_entries(field, submitted, errors) if field.entries else _parse_field(field, submitted)
            )
        except FieldError as error:
            errors[field.name] = error
    kept = {key: each for key, each in value.items() if each is not MISSING}
    return (kept.get(ROOT_NAME) if any(field.key is None for field in fields) else kept), errors


def fill_fields(fields: Iterable[Field], submitted: Mapping[str, str], errors: Mapping[str, str]) -> list[Field]:
    """Return the fields with the submitted texts and errors."""
    return [
        replace(
            field,
            text=get_text(field, submitted),
            error=errors.get(field.name, ""),
            entries=tuple(tuple(fill_fields(entry, submitted, errors)) for entry in field.entries),
        )
        for field in fields
    ]


def parse_json(text: str) -> Any:
    """Raise Wrong if it is not JSON, or nested too deeply to be one of ours."""
    try:
        check_json_limits(text.encode())
        check_surrogates(text.encode())
        return json.loads(text, parse_constant=_reject_constant)
    except json.JSONDecodeError as error:
        raise FieldError(
            N_("Invalid JSON at line %(line)s, column %(column)s."), line=error.lineno, column=error.colno
        ) from None
    except (Problem, ValueError, RecursionError):
        raise FieldError(N_("This is not valid JSON.")) from None


def _parse_entries(field: Field, submitted: Mapping[str, str], errors: dict[str, FieldError]) -> list[Any]:
    """Return the values of all entries that are not empty, and add their errors to `errors`."""
    found = [parse_form(entry, submitted) for entry in field.entries if not is_empty_entry(entry, submitted)]
    for _, each in found:
        errors.update(each)
    return [value for value, _ in found]


def _parse_field(field: Field, submitted: Mapping[str, str]) -> Any:
    if field.kind == "hidden":
        return field.hidden_value
    text = get_text(field, submitted).replace("\r\n", "\n")
    if field.kind == "yes":
        return text == "yes"
    if not text.strip() and field.nullable:
        return None
    if not text.strip() and field.has_default and field.kind in OPTIONAL_KINDS:
        return MISSING
    match field.kind:
        case "lines":
            return [line.strip() for line in text.split("\n") if line.strip()]
        case "pairs":
            return dict(_parse_pair(line) for line in text.split("\n") if line.strip())
        case "whole":
            return _parse_number(text, int)
        case "number":
            return _parse_number(text, float)
        case "maybe":
            return text == "yes"
        case "moment":
            return _parse_moment(text, field.zone)
        case "json":
            return parse_json(text)
        case _:
            return text


def _parse_pair(line: str) -> tuple[str, str]:
    name, colon, text = line.partition(":")
    if not (name.strip() and colon and text.strip()):
        raise FieldError(N_("Write name: text, unlike this line: %(line)s"), line=line.strip()[:40])
    return name.strip(), text.strip()


def _parse_number(text: str, kind: type[int] | type[float]) -> int | float:
    try:
        number = kind(text.strip().replace(",", ".") if kind is float else text.strip())
    except ValueError:
        raise FieldError(NOT_WHOLE if kind is int else NOT_A_NUMBER) from None
    if isinstance(number, float) and not math.isfinite(number):
        raise FieldError(NOT_A_NUMBER)
    return number


def _parse_moment(text: str, zone: tzinfo) -> str:
    try:
        at = datetime.fromisoformat(text.strip())
        return (at if at.tzinfo else at.replace(tzinfo=zone)).astimezone(UTC).isoformat().replace("+00:00", "Z")
    except (ValueError, OverflowError):
        raise FieldError(NOT_A_MOMENT) from None


def _reject_constant(name: str) -> Any:
    raise ValueError(f"{name} is not JSON")
