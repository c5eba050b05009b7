"""What pydantic says of a value, at the fields that it was typed into."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from pydantic import ValidationError
from pydantic_core import ErrorDetails

from retoma.server.pages.typed.field import Field, Wrong, is_emptied, offered

Place = tuple[str | int, ...]
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
    entries = dict(enumerate(entry for entry in field.entries if not is_emptied(entry, given)))
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
