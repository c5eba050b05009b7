"""The fields of a JSON schema, filled with a value."""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from typing import Any

from pydantic import TypeAdapter
from pydantic.errors import PydanticInvalidForJsonSchema, PydanticSchemaGenerationError

from retoma.server.pages.formats import worded
from retoma.server.pages.typed.field import MISSING, NAME, TEXTS, Field, Kind, is_emptied
from retoma.server.pages.typed.reading import read

LONGEST_LINE = 200
MOST_FIELDS = 200
MOST_ENTRY_FIELDS = 1_000  # of all entries of a list
ADDED_ENTRIES = 2  # empty ones, after those that are there


def schema_of(form: Any) -> dict[str, Any]:
    """Nothing for a type that JSON schema cannot tell of: it is then edited as JSON."""
    try:
        return TypeAdapter(form).json_schema()
    except (PydanticInvalidForJsonSchema, PydanticSchemaGenerationError):
        return {}


def fields_of(
    schema: Mapping[str, Any], value: Any = MISSING, *, name: str = NAME, language: str = "en"
) -> list[Field]:
    """The fields of an object, or one for anything else, filled with `value` or with what the schema says."""
    whole = _resolved(schema, schema)
    properties = whole.get("properties")
    if whole.get("hidden") or whole.get("type") != "object" or not properties or len(properties) > MOST_FIELDS:
        return [_field(schema, name, None, whole, value, language)]
    return list(_members(schema, name, properties, value if isinstance(value, Mapping) else {}, language))


def _members(
    root: Mapping[str, Any], name: str, properties: Mapping[str, Any], given: Mapping[str, Any], language: str
) -> Iterator[Field]:
    for key, part in properties.items():
        yield _field(root, f"{name}.{key}", key, part, given.get(key, MISSING), language)


def _field(
    root: Mapping[str, Any], name: str, key: str | None, schema: Mapping[str, Any], value: Any, language: str
) -> Field:
    said = schema.get(language) or {}
    part, nullable = _without_null(root, schema)
    standing = value
    if value is MISSING:
        value = schema.get("default", part.get("default"))
    kind, choices = ("hidden", ()) if schema.get("hidden") else _kind(root, part, value, nullable)
    entries = _entries_of(root, name, part, value, language) if kind == "json" and not nullable else ()
    return Field(
        name=name,
        key=key,
        label=str(said.get("title") or _label(key, part)),
        hint=str(said.get("description") or schema.get("description") or "") if key else "",
        kind="entries" if entries else kind,
        typed="" if entries else _shown(kind, value),
        nullable=nullable,
        has_default="default" in schema,
        choices=choices,
        longest=part.get("maxLength") if kind in TEXTS else None,
        entries=entries,
        standing=standing if kind == "hidden" else None,
    )


def _entries_of(
    root: Mapping[str, Any], name: str, schema: Mapping[str, Any], value: Any, language: str
) -> tuple[tuple[Field, ...], ...]:
    """The fields of each object of a list, and of some more; none if it would not be read again as it was."""
    properties = _resolved(root, schema.get("items") or {}).get("properties")
    standing = [] if value is None else value
    if schema.get("type") != "array" or not properties or not _are_objects(standing):
        return ()
    made = [
        tuple(_members(root, f"{name}.{number}", properties, each, language))
        for number, each in enumerate([*standing, *[{}] * ADDED_ENTRIES])
    ]
    entries = (*made[: len(standing)], *(_without_texts(entry) for entry in made[len(standing) :]))
    return entries if _fit(entries, standing) else ()


def _are_objects(value: Any) -> bool:
    return isinstance(value, list) and all(isinstance(each, Mapping) for each in value)


def _without_texts(entry: Iterable[Field]) -> tuple[Field, ...]:
    return tuple(replace(field, typed="") if field.kind in TEXTS else field for field in entry)


def _fit(entries: Sequence[Sequence[Field]], value: list[Any]) -> bool:
    """Whether they are simple, and what is shown in them is read again as it was."""
    each = [field for entry in entries for field in entry]
    kinds = {field.kind for field in each}
    if len(each) > MOST_ENTRY_FIELDS or kinds & {"entries", "json"} or kinds.isdisjoint(TEXTS):
        return False
    shown = {field.name: field.typed for field in each}
    return [read(entry, shown) for entry in entries if not is_emptied(entry, shown)] == [(one, {}) for one in value]


def _label(key: str | None, schema: Mapping[str, Any]) -> str:
    return str(schema.get("title") or "") if key is None else worded(key)


def _kind(
    root: Mapping[str, Any], schema: Mapping[str, Any], value: Any, nullable: bool
) -> tuple[Kind, tuple[str, ...]]:
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
            return ("maybe" if nullable else "yes"), ()
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
        case "hidden" | "entries":
            return ""
        case "json":
            return "" if value is None else json.dumps(value, indent=2, ensure_ascii=False)
        case "yes":
            return "yes" if value else ""
        case "maybe":
            return "" if value is None else "yes" if value else "no"
        case "lines":
            return "\n".join(value or [])
        case "pairs":
            return "\n".join(f"{name}: {each}" for name, each in (value or {}).items())
        case _:
            return "" if value is None else str(value)


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
