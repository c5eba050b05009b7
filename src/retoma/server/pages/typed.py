"""A form made from a JSON schema, and what a person typed into it as JSON again. Pure.

A field that is a text, a number, a yes or no, a choice, a list of texts or texts by name has a control of its own; all
else is JSON. What a schema says under a language's name, `{"pt": {"title": ..., "description": ...}}`, is said in it.
"""

from __future__ import annotations

import json
import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, Literal

from pydantic import ValidationError

from retoma.server.edge import check_json
from retoma.server.problems import Problem

Kind = Literal["line", "text", "lines", "pairs", "whole", "number", "yes", "choice", "json"]
Place = tuple[str | int, ...]
NAME = "value"
LONGEST_LINE = 200
MOST_FIELDS = 200
_MISSING = object()


class Wrong(ValueError):
    """What was typed is not of its field's kind. `name` is the word that says so, `values` are for it."""

    def __init__(self, name: str, **values: Any) -> None:
        super().__init__(name)
        self.name = name
        self.values = values


@dataclass(frozen=True)
class Field:
    """`name` is what the form calls it, `typed` what stands in it, `key` the property it is, None if it is the whole.

    `wrong` says what is wrong with it, in the words of whoever refused it.
    """

    name: str
    key: str | None
    label: str
    hint: str
    kind: Kind
    typed: str
    nullable: bool = False
    has_default: bool = False
    choices: tuple[str, ...] = ()
    longest: int | None = None
    wrong: str = ""

    @property
    def is_required(self) -> bool:
        return not self.nullable and not self.has_default


def fields_of(
    schema: Mapping[str, Any], value: Any = _MISSING, *, name: str = NAME, language: str = "en"
) -> list[Field]:
    """The fields of an object, or one for anything else, filled with `value` or with what the schema says."""
    whole = _resolved(schema, schema)
    properties = whole.get("properties")
    if whole.get("type") != "object" or not properties or len(properties) > MOST_FIELDS:
        return [_field(schema, name, None, whole, value, language)]
    given = value if isinstance(value, Mapping) else {}
    return [
        _field(schema, f"{name}.{key}", key, part, given.get(key, _MISSING), language)
        for key, part in properties.items()
    ]


def read(fields: Sequence[Field], given: Mapping[str, str]) -> tuple[Any, dict[str, Wrong]]:
    """What was typed, as JSON; and by name of the field what cannot be that."""
    value: dict[str, Any] = {}
    wrong: dict[str, Wrong] = {}
    for field in fields:
        try:
            value[field.key or NAME] = _typed(field, _given(field, given))
        except Wrong as error:
            wrong[field.name] = error
    kept = {key: each for key, each in value.items() if each is not _MISSING}
    return (kept.get(NAME) if any(field.key is None for field in fields) else kept), wrong


def filled(fields: Iterable[Field], given: Mapping[str, str], wrong: Mapping[str, str]) -> list[Field]:
    """The form as a person left it, with what is wrong at each field."""
    return [replace(field, typed=_given(field, given), wrong=wrong.get(field.name, "")) for field in fields]


def place_of(fields: Sequence[Field], location: Place) -> str | None:
    """The field that a complaint about this part of the value belongs to."""
    names = {field.key: field.name for field in fields}
    return names.get(None) or next((names[part] for part in location[:1] if part in names), None)


def complaints(fields: Sequence[Field], error: ValidationError) -> dict[str, str]:
    """What the type of the value says of each field, by the field's name."""
    found: dict[str, str] = {}
    for each in error.errors(include_input=False, include_url=False):
        name = place_of(fields, each["loc"])
        inner = ".".join(map(str, each["loc"] if name == NAME else each["loc"][1:]))
        if name is not None:
            found.setdefault(name, f"{inner}: {each['msg']}" if inner else each["msg"])
    return found


def _given(field: Field, given: Mapping[str, str]) -> str:
    """Texts by name may also be typed one by one, each in a control called `field.name`."""
    text, prefix = given.get(field.name, ""), f"{field.name}."
    if field.kind != "pairs":
        return text
    each = [f"{name.removeprefix(prefix)}: {one}" for name, one in given.items() if name.startswith(prefix) and one]
    return "\n".join([*each, *([text] if text else [])])


def _field(
    root: Mapping[str, Any], name: str, key: str | None, schema: Mapping[str, Any], value: Any, language: str
) -> Field:
    said = schema.get(language) or {}
    part, nullable = _without_null(root, schema)
    if value is _MISSING:
        value = schema.get("default", part.get("default"))
    kind, choices = _kind(root, part, value)
    return Field(
        name=name,
        key=key,
        label=str(said.get("title") or _label(key, part)),
        hint=str(said.get("description") or schema.get("description") or "") if key else "",
        kind=kind,
        typed=_shown(kind, value),
        nullable=nullable,
        has_default="default" in schema,
        choices=choices,
        longest=part.get("maxLength") if kind in ("line", "text") else None,
    )


def _label(key: str | None, schema: Mapping[str, Any]) -> str:
    return str(schema.get("title") or "") if key is None else key.replace("_", " ").capitalize()


def _kind(root: Mapping[str, Any], schema: Mapping[str, Any], value: Any) -> tuple[Kind, tuple[str, ...]]:
    choices = schema.get("enum") or ([schema["const"]] if "const" in schema else [])
    if choices and all(isinstance(each, str) for each in choices):
        return "choice", tuple(choices)
    match schema.get("type"):
        case "string" if value is None or isinstance(value, str):
            return ("text" if _is_long(schema, value or "") else "line"), ()
        case "integer":
            return "whole", ()
        case "number":
            return "number", ()
        case "boolean":
            return "yes", ()
        case "array" if _resolved(root, schema.get("items") or {}).get("type") == "string" and _fits_lines(value):
            return "lines", ()
        case "object" if _is_of_texts(schema) and _fits_pairs(value):
            return "pairs", ()
        case _:
            return "json", ()


def _is_long(schema: Mapping[str, Any], value: str) -> bool:
    if schema.get("format"):
        return False
    return schema.get("maxLength", LONGEST_LINE + 1) > LONGEST_LINE or "\n" in value


def _fits_lines(value: Any) -> bool:
    """Whether a list can be shown one to a line, and be read again as it was."""
    texts = value or []
    return all(isinstance(each, str) and each.strip() == each != "" and "\n" not in each for each in texts)


def _is_of_texts(schema: Mapping[str, Any]) -> bool:
    parts = [schema.get("additionalProperties"), *schema.get("patternProperties", {}).values()]
    kinds = {part.get("type") for part in parts if isinstance(part, Mapping)}
    return "properties" not in schema and kinds == {"string"}


def _fits_pairs(value: Any) -> bool:
    texts = value or {}
    if not isinstance(texts, Mapping) or any(":" in name for name in texts):
        return False
    return _fits_lines([*texts, *texts.values()])


def _shown(kind: Kind, value: Any) -> str:
    match kind:
        case "json":
            return "" if value is None else json.dumps(value, indent=2, ensure_ascii=False)
        case "yes":
            return "yes" if value else ""
        case "lines":
            return "\n".join(value or [])
        case "pairs":
            return "\n".join(f"{name}: {each}" for name, each in (value or {}).items())
        case _:
            return "" if value is None else str(value)


def _typed(field: Field, text: str) -> Any:
    text = text.replace("\r\n", "\n")
    if field.kind == "yes":
        return text == "yes"
    if not text.strip() and field.nullable:
        return None
    if not text.strip() and field.has_default and field.kind in ("whole", "number", "json", "choice", "pairs"):
        return _MISSING
    match field.kind:
        case "lines":
            return [line.strip() for line in text.split("\n") if line.strip()]
        case "pairs":
            return dict(_pair(line) for line in text.split("\n") if line.strip())
        case "whole":
            return _number(text, int)
        case "number":
            return _number(text, float)
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
    if not math.isfinite(number):
        raise Wrong("wrong number")
    return number


def read_json(text: str) -> Any:
    """Raise Wrong if it is no JSON, or nested too deeply to be one of ours."""
    try:
        check_json(text.encode())
        return json.loads(text, parse_constant=_refused)
    except json.JSONDecodeError as error:
        raise Wrong("wrong json at", line=error.lineno, column=error.colno) from None
    except (Problem, ValueError, RecursionError):
        raise Wrong("wrong json") from None


def _refused(name: str) -> Any:
    raise ValueError(f"{name} is no JSON")


def _without_null(root: Mapping[str, Any], schema: Mapping[str, Any]) -> tuple[Mapping[str, Any], bool]:
    """What it is if it is not null, and whether it may be null."""
    found = _resolved(root, schema)
    parts = [_resolved(root, part) for part in found.get("anyOf", ())]
    others = [part for part in parts if part.get("type") != "null"]
    return (others[0], len(others) < len(parts)) if len(others) == 1 else (found, len(others) < len(parts))


def _resolved(root: Mapping[str, Any], schema: Mapping[str, Any]) -> Mapping[str, Any]:
    reference = schema.get("$ref", "")
    if not reference.startswith("#/$defs/"):
        return schema
    found: Mapping[str, Any] = root.get("$defs", {}).get(reference.removeprefix("#/$defs/"), {})
    return {**found, **{name: each for name, each in schema.items() if name != "$ref"}}
