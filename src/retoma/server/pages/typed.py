"""A form made from a JSON schema, and what a person typed into it as JSON again. Pure.

A field that is a text, a number, a yes or no, a choice, a list of texts or texts by name has a control of its own, and
so has each field of the objects of a list, if they are as simple; all else is JSON. What a schema says under a
language's name, `{"pt": {"title": ..., "description": ...}}`, is said in it. What it calls `hidden` is not offered and
stays as it is.
"""

from __future__ import annotations

import json
import math
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, Literal

from pydantic import ValidationError
from pydantic_core import ErrorDetails

from retoma.server.edge import check_json
from retoma.server.problems import Problem

Kind = Literal[
    "line", "text", "lines", "pairs", "whole", "number", "yes", "maybe", "choice", "entries", "hidden", "json"
]
Place = tuple[str | int, ...]
TEXTS: tuple[Kind, ...] = ("line", "text")
NAME = "value"
LONGEST_LINE = 200
MOST_FIELDS = 200
MOST_ENTRY_FIELDS = 1_000  # of all entries of a list
ADDED_ENTRIES = 2  # empty ones, after those that are there
_MISSING = object()
_TOLD = ("gt", "ge", "lt", "le", "min_length", "max_length", "expected")
# What pydantic calls a mistake, and the word for it.
_COMPLAINTS = {
    **dict.fromkeys(("int_parsing", "int_type", "int_from_float", "int_parsing_size"), "wrong whole"),
    **dict.fromkeys(("float_parsing", "float_type", "finite_number"), "wrong number"),
    "missing": "wrong missing",
    "greater_than": "wrong gt",
    "greater_than_equal": "wrong ge",
    "less_than": "wrong lt",
    "less_than_equal": "wrong le",
    "string_too_short": "wrong short text",
    "string_too_long": "wrong long text",
    "too_short": "wrong short list",
    "too_long": "wrong long list",
    "enum": "wrong choice",
    "literal_error": "wrong choice",
}


class Wrong(ValueError):
    """What was typed is not of its field's kind. `name` is the word that says so, `values` are for it.

    `within` is the part of the field that it is about.
    """

    def __init__(self, name: str, within: str = "", **values: Any) -> None:
        super().__init__(name)
        self.name = name
        self.within = within
        self.values = values


@dataclass(frozen=True)
class Field:
    """`name` is what the form calls it, `typed` what stands in it, `key` the property it is, None if it is the whole.

    `wrong` says what is wrong with it, in the words of whoever refused it. `entries` are the fields of each object of a
    list, `standing` is what a hidden one stays.
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
    entries: tuple[tuple[Field, ...], ...] = ()
    standing: Any = None

    @property
    def is_required(self) -> bool:
        return not self.nullable and not self.has_default


def fields_of(
    schema: Mapping[str, Any], value: Any = _MISSING, *, name: str = NAME, language: str = "en"
) -> list[Field]:
    """The fields of an object, or one for anything else, filled with `value` or with what the schema says."""
    whole = _resolved(schema, schema)
    properties = whole.get("properties")
    if whole.get("hidden") or whole.get("type") != "object" or not properties or len(properties) > MOST_FIELDS:
        return [_field(schema, name, None, whole, value, language)]
    return list(_members(schema, name, properties, value if isinstance(value, Mapping) else {}, language))


def read(fields: Sequence[Field], given: Mapping[str, str]) -> tuple[Any, dict[str, Wrong]]:
    """What was typed, as JSON; and by name of the field what cannot be that."""
    value: dict[str, Any] = {}
    wrong: dict[str, Wrong] = {}
    for field in fields:
        try:
            value[field.key or NAME] = _entries(field, given, wrong) if field.entries else _typed(field, given)
        except Wrong as error:
            wrong[field.name] = error
    kept = {key: each for key, each in value.items() if each is not _MISSING}
    return (kept.get(NAME) if any(field.key is None for field in fields) else kept), wrong


def filled(fields: Iterable[Field], given: Mapping[str, str], wrong: Mapping[str, str]) -> list[Field]:
    """The form as a person left it, with what is wrong at each field."""
    return [
        replace(
            field,
            typed=_given(field, given),
            wrong=wrong.get(field.name, ""),
            entries=tuple(tuple(filled(entry, given, wrong)) for entry in field.entries),
        )
        for field in fields
    ]


def offered(fields: Iterable[Field]) -> list[Field]:
    return [field for field in fields if field.kind != "hidden"]


def controls(fields: Iterable[Field]) -> Iterator[Field]:
    """Those that a person types into."""
    for field in offered(fields):
        yield from (each for entry in field.entries for each in controls(entry)) if field.entries else [field]


def complaints(fields: Sequence[Field], given: Mapping[str, str], error: ValidationError) -> dict[str, Wrong]:
    """What the type of the value says of each field, by the field's name."""
    found: dict[str, Wrong] = {}
    for each in error.errors(include_input=False, include_url=False):
        name, within = _placed(fields, given, each["loc"])
        if name is not None:
            found.setdefault(name, _complaint(each, ".".join(map(str, within))))
    return found


def _placed(fields: Sequence[Field], given: Mapping[str, str], location: Place) -> tuple[str | None, Place]:
    """The field that a complaint about this part of the value belongs to, and the part of that field."""
    for field in offered(fields):
        if field.key is None or location[:1] == (field.key,):
            within = location if field.key is None else location[1:]
            return _placed_in_entry(field, given, within) or (field.name, within)
    return None, location


def _placed_in_entry(field: Field, given: Mapping[str, str], within: Place) -> tuple[str, Place] | None:
    """Entries that were left out are not counted in the value."""
    entries = dict(enumerate(entry for entry in field.entries if not _is_emptied(entry, given)))
    entry = next((entries[number] for number in within[:1] if isinstance(number, int) and number in entries), ())
    name, rest = _placed(entry, given, within[1:])
    return None if name is None else (name, rest)


def _complaint(error: ErrorDetails, within: str) -> Wrong:
    """In our words, where we have some."""
    about = error.get("ctx", {})
    name = _COMPLAINTS.get(error["type"])
    if name is None:
        return Wrong("wrong other", within, why=str(about.get("error", error["msg"])))
    told = {each: value for each, value in about.items() if each in _TOLD}
    if "expected" in told:
        told["expected"] = told["expected"].replace("' or '", "', '")  # which only English says
    return Wrong(name, within, **told)


def _given(field: Field, given: Mapping[str, str]) -> str:
    """Texts by name may also be typed one by one, each in a control called `field.name`."""
    text, prefix = given.get(field.name, ""), f"{field.name}."
    if field.kind != "pairs":
        return text
    each = [f"{name.removeprefix(prefix)}: {one}" for name, one in given.items() if name.startswith(prefix) and one]
    return "\n".join([*each, *([text] if text else [])])


def _members(
    root: Mapping[str, Any], name: str, properties: Mapping[str, Any], given: Mapping[str, Any], language: str
) -> Iterator[Field]:
    for key, part in properties.items():
        yield _field(root, f"{name}.{key}", key, part, given.get(key, _MISSING), language)


def _field(
    root: Mapping[str, Any], name: str, key: str | None, schema: Mapping[str, Any], value: Any, language: str
) -> Field:
    said = schema.get(language) or {}
    part, nullable = _without_null(root, schema)
    standing = value
    if value is _MISSING:
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
    return [read(entry, shown) for entry in entries if not _is_emptied(entry, shown)] == [(one, {}) for one in value]


def _entries(field: Field, given: Mapping[str, str], wrong: dict[str, Wrong]) -> list[Any]:
    """What was typed into each, but for those that are empty; what is wrong with one is added to `wrong`."""
    found = [read(entry, given) for entry in field.entries if not _is_emptied(entry, given)]
    for _, each in found:
        wrong.update(each)
    return [value for value, _ in found]


def _is_emptied(entry: Sequence[Field], given: Mapping[str, str]) -> bool:
    """Whether none of its texts is left."""
    return not any(_given(field, given).strip() for field in entry if field.kind in TEXTS)


def _label(key: str | None, schema: Mapping[str, Any]) -> str:
    return str(schema.get("title") or "") if key is None else key.replace("_", " ").capitalize()


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


def _typed(field: Field, given: Mapping[str, str]) -> Any:
    if field.kind == "hidden":
        return field.standing
    text = _given(field, given).replace("\r\n", "\n")
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
