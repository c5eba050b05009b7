"""Build the fields of a JSON schema, filled with a value."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from datetime import UTC, datetime
from typing import Any

from pydantic import TypeAdapter
from pydantic.errors import PydanticInvalidForJsonSchema, PydanticSchemaGenerationError

from retoma.server.pages.formats import humanize
from retoma.server.pages.forms.field import (
    MISSING,
    ROOT_NAME,
    TEXT_KINDS,
    Field,
    Kind,
    format_moment,
    is_empty_entry,
)
from retoma.server.pages.forms.parsing import parse_form
from retoma.translations import N_

Translate = Callable[[str], str]
MAX_LINE_LENGTH = 200
MAX_FIELDS = 200
MAX_ENTRY_FIELDS = 1_000  # of all entries of a list
EXTRA_ENTRIES = 2  # empty ones, after those that are there


def build_schema(form: Any) -> dict[str, Any] | None:
    """Return the JSON Schema of a form, or None if there is no form or its type cannot be described."""
    try:
        return None if form is None else TypeAdapter(form).json_schema()
    except (PydanticInvalidForJsonSchema, PydanticSchemaGenerationError):
        return None


def build_fields(
    schema: Mapping[str, Any] | None, value: Any = MISSING, *, name: str = ROOT_NAME, translate: Translate = str
) -> list[Field]:
    """Return the fields of an object, or one field for any other value, filled with `value` or the schema's default.

    Without a schema, the value is edited as JSON.
    """
    schema = schema or {}
    whole = _resolve_reference(schema, schema)
    properties = whole.get("properties")
    if whole.get("hidden") or whole.get("type") != "object" or not properties or len(properties) > MAX_FIELDS:
        return [_build_field(schema, name, None, whole, value, translate)]
    return list(_build_members(schema, name, properties, value if isinstance(value, Mapping) else {}, translate))


def _build_members(
    root: Mapping[str, Any], name: str, properties: Mapping[str, Any], value: Mapping[str, Any], translate: Translate
) -> Iterator[Field]:
    for key, part in properties.items():
        yield _build_field(root, f"{name}.{key}", key, part, value.get(key, MISSING), translate)


def _build_field(
    root: Mapping[str, Any], name: str, key: str | None, schema: Mapping[str, Any], value: Any, translate: Translate
) -> Field:
    part, nullable = _strip_null(root, schema)
    current = value
    if value is MISSING:
        value = schema.get("default", part.get("default"))
    kind, choices = ("hidden", ()) if schema.get("hidden") else _choose_kind(root, part, value, nullable)
    entries = _build_entries(root, name, part, value, translate) if kind == "json" and not nullable else ()
    return Field(
        name=name,
        key=key,
        label=_translate_text(str(part.get("title") or "") if key is None else make_label(key, schema), translate),
        hint=_make_hint(schema, translate) if key else "",
        kind="entries" if entries else kind,
        text="" if entries else _format_value(kind, value),
        nullable=nullable,
        has_default="default" in schema,
        choices=choices,
        max_length=part.get("maxLength") if kind in TEXT_KINDS else None,
        entries=entries,
        hidden_value=current if kind == "hidden" else None,
        steps=tuple(schema.get("steps", ())),
    )


def _build_entries(
    root: Mapping[str, Any], name: str, schema: Mapping[str, Any], value: Any, translate: Translate
) -> tuple[tuple[Field, ...], ...]:
    """Return the fields of each object of a list plus some empty ones; none if that would change the value."""
    properties = _resolve_reference(root, schema.get("items") or {}).get("properties")
    current = [] if value is None else value
    if schema.get("type") != "array" or not properties or not _are_objects(current):
        return ()
    filled = [
        tuple(_build_members(root, f"{name}.{number}", properties, each, translate))
        for number, each in enumerate([*current, *[{}] * EXTRA_ENTRIES])
    ]
    entries = (*filled[: len(current)], *(_clear_texts(entry) for entry in filled[len(current) :]))
    return entries if _can_edit_entries(entries, current) else ()


def _are_objects(value: Any) -> bool:
    return isinstance(value, list) and all(isinstance(each, Mapping) for each in value)


def _clear_texts(entry: Iterable[Field]) -> tuple[Field, ...]:
    return tuple(replace(field, text="") if field.kind in TEXT_KINDS else field for field in entry)


def _can_edit_entries(entries: Sequence[Sequence[Field]], value: list[Any]) -> bool:
    """Return whether the entries are simple and parse to the same value."""
    each = [field for entry in entries for field in entry]
    kinds = {field.kind for field in each}
    if len(each) > MAX_ENTRY_FIELDS or kinds & {"entries", "json"} or kinds.isdisjoint(TEXT_KINDS):
        return False
    shown = {field.name: field.text for field in each}
    return [parse_form(entry, shown) for entry in entries if not is_empty_entry(entry, shown)] == [
        (one, {}) for one in value
    ]


def resolve_schema(root: Mapping[str, Any], schema: Mapping[str, Any]) -> Mapping[str, Any]:
    """Return the schema of a value that is not null, with references to definitions of `root` resolved."""
    return _strip_null(root, schema)[0]


def _translate_text(text: str, translate: Translate) -> str:
    return translate(text) if text else ""  # gettext has the header of the catalogue under the empty string


def _make_hint(schema: Mapping[str, Any], translate: Translate) -> str:
    hints = [_translate_text(str(schema.get("description") or ""), translate)]
    if examples := schema.get("examples"):
        hints.append(translate(N_("For example: %(examples)s")) % {"examples": ", ".join(map(str, examples))})
    return " ".join(filter(None, hints))


def make_label(key: str, schema: Mapping[str, Any]) -> str:
    """Return the title that the schema gives the field, or its name in words. Not translated."""
    title = str(schema.get("title") or "")
    return humanize(key) if title in ("", _make_default_title(key)) else title


def _make_default_title(key: str) -> str:
    """Return the title that pydantic derives from the name of a field without one."""
    return key.title().replace("_", " ").strip()


def _choose_kind(
    root: Mapping[str, Any], schema: Mapping[str, Any], value: Any, nullable: bool
) -> tuple[Kind, tuple[str, ...]]:
    choices = schema.get("enum") or ([schema["const"]] if "const" in schema else [])
    if choices and all(isinstance(each, str) for each in choices):
        return "choice", tuple(choices)
    match schema.get("type"):
        case "string" if schema.get("format") == "date-time" and _fits_moment(value):
            return "moment", ()
        case "string" if value is None or isinstance(value, str):
            return ("text" if _is_long(schema, value or "") else "line"), ()
        case "integer":
            return "whole", ()
        case "number":
            return "number", ()
        case "boolean":
            return ("maybe" if nullable else "yes"), ()
        case "array" if _resolve_reference(root, schema.get("items") or {}).get("type") == "string" and _fits_lines(
            value
        ):
            return "lines", ()
        case "object" if _is_text_mapping(schema) and _fits_pairs(value):
            return "pairs", ()
        case _:
            return "json", ()


def _is_long(schema: Mapping[str, Any], value: str) -> bool:
    if schema.get("format"):
        return False
    return schema.get("maxLength", MAX_LINE_LENGTH + 1) > MAX_LINE_LENGTH or "\n" in value


def _fits_moment(value: Any) -> bool:
    """Return whether it can be edited to the minute without loss."""
    if value is None:
        return True
    try:
        at = datetime.fromisoformat(value)
    except (TypeError, ValueError):
        return False
    return at.tzinfo is not None and at.second == at.microsecond == 0


def _fits_lines(value: Any) -> bool:
    """Return whether a list can be edited one per line without loss."""
    texts = value or []
    return all(isinstance(each, str) and each.strip() == each != "" and "\n" not in each for each in texts)


def _is_text_mapping(schema: Mapping[str, Any]) -> bool:
    parts = [schema.get("additionalProperties"), *schema.get("patternProperties", {}).values()]
    kinds = {part.get("type") for part in parts if isinstance(part, Mapping)}
    return "properties" not in schema and kinds == {"string"}


def _fits_pairs(value: Any) -> bool:
    texts = value or {}
    if not isinstance(texts, Mapping) or any(":" in name for name in texts):
        return False
    return _fits_lines([*texts, *texts.values()])


def _format_value(kind: Kind, value: Any) -> str:
    match kind:
        case "hidden" | "entries":
            return ""
        case "json":
            return "" if value is None else json.dumps(value, indent=2, ensure_ascii=False)
        case "yes":
            return "yes" if value else ""
        case "maybe":
            return "" if value is None else "yes" if value else "no"
        case "moment":
            return "" if value is None else format_moment(datetime.fromisoformat(value).astimezone(UTC))
        case "lines":
            return "\n".join(value or [])
        case "pairs":
            return "\n".join(f"{name}: {each}" for name, each in (value or {}).items())
        case _:
            return "" if value is None else str(value)


def _strip_null(root: Mapping[str, Any], schema: Mapping[str, Any]) -> tuple[Mapping[str, Any], bool]:
    """Return the schema without null, and whether null is allowed."""
    found = _resolve_reference(root, schema)
    parts = [_resolve_reference(root, part) for part in found.get("anyOf", ())]
    others = [part for part in parts if part.get("type") != "null"]
    return (others[0], len(others) < len(parts)) if len(others) == 1 else (found, len(others) < len(parts))


def _resolve_reference(root: Mapping[str, Any], schema: Mapping[str, Any]) -> Mapping[str, Any]:
    reference = schema.get("$ref", "")
    if not reference.startswith("#/$defs/"):
        return schema
    found: Mapping[str, Any] = root.get("$defs", {}).get(reference.removeprefix("#/$defs/"), {})
    return {**found, **{name: each for name, each in schema.items() if name != "$ref"}}
