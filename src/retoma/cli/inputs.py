"""Parse inputs, times and JSON values of command-line options."""

from __future__ import annotations

import json
import re
import sys
from collections.abc import Iterable
from datetime import datetime, timedelta
from pathlib import Path
from typing import Any

import typer
from pydantic import AliasChoices, AliasPath, BaseModel, TypeAdapter, ValidationError
from pydantic.fields import FieldInfo

from retoma.define.definition_errors import suggest_name

_RELATIVE = re.compile(r"\+(\d+(?:\.\d+)?)(s|m|h|d)")
_UNITS = {"s": "seconds", "m": "minutes", "h": "hours", "d": "days"}


def read_input(model: type[BaseModel] | None, json_text: str | None, parts: Iterable[str]) -> dict[str, Any]:
    """Return the fields of `--input` (JSON, `@file` or `-`), overridden by those of `-i key=value`."""
    return (read_object("--input", json_text) if json_text is not None else {}) | read_fields("-i", model, parts)


def read_fields(option: str, model: type[BaseModel] | None, parts: Iterable[str]) -> dict[str, Any]:
    """Parse `key=value` fields."""
    fields = {}
    for part in parts:
        name, equals, text = part.partition("=")
        if not equals or not name:
            raise typer.BadParameter(f"{option} must be key=value, not {part!r}")
        _check_known(option, model, name)
        fields[name] = _parse_value(model, name, text)
        _check_list(option, model, name, fields[name])
    return fields


def read_future(text: str, now: datetime) -> datetime:
    """Parse an ISO time, local unless it has an offset, or a delay from `now` such as `+10m`."""
    if match := _RELATIVE.fullmatch(text):
        return now + _to_duration(match)
    return _parse_time("--run-at", text, "a delay such as +10m")


def read_past(option: str, text: str | None, now: datetime) -> datetime | None:
    """Parse an ISO time, local unless it has an offset, or an age such as `2h` before `now`. None stays None."""
    if text is None:
        return None
    if match := _RELATIVE.fullmatch(f"+{text.removesuffix(' ago')}"):
        return now - _to_duration(match)
    return _parse_time(option, text, "an age such as 2h")


def read_duration(option: str, text: str) -> timedelta:
    """Parse a duration such as `90d`, `2h`, `30m` or `10s`."""
    match = _RELATIVE.fullmatch(f"+{text.removeprefix('+')}")
    if match is None:
        raise typer.BadParameter(f"{option} must be a duration such as 90d, 2h, 30m or 10s, not {text!r}")
    return _to_duration(match)


def _to_duration(match: re.Match[str]) -> timedelta:
    return timedelta(**{_UNITS[match[2]]: float(match[1])})


def _parse_time(option: str, text: str, alternative: str) -> datetime:
    try:
        return datetime.fromisoformat(text).astimezone()
    except ValueError:
        raise typer.BadParameter(
            f"{option} must be an ISO time such as 2030-01-31T08:00, or {alternative} (s, m, h, d), not {text!r}"
        ) from None


def read_json(option: str, text: str) -> Any:
    """Parse JSON, `@file` or `-` for stdin."""
    try:
        return json.loads(_read_text(option, text))
    except ValueError as error:
        raise typer.BadParameter(f"{option} is not valid JSON: {error}") from None


def read_object(option: str, text: str) -> dict[str, Any]:
    value = read_json(option, text)
    if not isinstance(value, dict):
        raise typer.BadParameter(f"{option} must be a JSON object with a value for each field, not {value!r:.80}")
    return value


def _read_text(option: str, text: str) -> str:
    if text == "-":
        return sys.stdin.read()
    if text.startswith("@"):
        try:
            return Path(text[1:]).read_text(encoding="utf-8")
        except OSError as error:
            raise typer.BadParameter(f"{option}: {error}") from None
    return text


def _check_known(option: str, model: type[BaseModel] | None, name: str) -> None:
    """Raise BadParameter for an unknown field, because a model that ignores extra fields would hide a typo."""
    if model is None or model.model_config.get("extra", "ignore") != "ignore":
        return
    known = [name for field, info in model.model_fields.items() for name in _list_names(field, info)]
    if name not in known:
        raise typer.BadParameter(f"{option}: the input has no field {name!r}; {suggest_name(name, known)}")


def _check_list(option: str, model: type[BaseModel] | None, name: str, value: Any) -> None:
    """Raise BadParameter if the text should be a list or an object, which must be JSON."""
    field = model.model_fields.get(name) if model is not None else None
    if field is None or not isinstance(value, str) or _accepts(field.annotation, value):
        return
    for empty, example in (([], '["a", "b"]'), ({}, '{"a": "b"}')):
        if _accepts(field.annotation, empty):
            raise typer.BadParameter(
                f"{option}: {name!r} must be JSON, such as {option} '{name}={example}', not {value!r:.80}"
            )


def _list_names(field: str, info: FieldInfo) -> list[str]:
    alias = info.validation_alias
    choices = alias.choices if isinstance(alias, AliasChoices) else [alias] if alias else []
    return [field, *(str(choice.path[0]) if isinstance(choice, AliasPath) else choice for choice in choices)]


def _parse_value(model: type[BaseModel] | None, name: str, text: str) -> Any:
    """Return the text itself if the field accepts it; otherwise parse it as JSON if possible."""
    field = model.model_fields.get(name) if model is not None else None
    if field is not None and _accepts(field.annotation, text):
        return text
    try:
        return json.loads(text)
    except ValueError:
        return text


def _accepts(annotation: Any, value: Any) -> bool:
    try:
        TypeAdapter(annotation).validate_python(value, strict=True)
    except ValidationError:
        return False
    return True
