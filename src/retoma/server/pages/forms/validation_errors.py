"""Map pydantic's validation errors to the fields of a form."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from pydantic import ValidationError
from pydantic_core import ErrorDetails

from retoma.server.pages.forms.field import (
    NOT_A_NUMBER,
    NOT_WHOLE,
    Field,
    FieldError,
    is_empty_entry,
    visible_fields,
)
from retoma.translations import N_

Location = tuple[str | int, ...]
_CONTEXT_KEYS = ("gt", "ge", "lt", "le", "min_length", "max_length", "expected")
# The message by pydantic's error type.
_MESSAGE_BY_TYPE = {
    **dict.fromkeys(("int_parsing", "int_type", "int_from_float", "int_parsing_size"), NOT_WHOLE),
    **dict.fromkeys(("float_parsing", "float_type", "finite_number"), NOT_A_NUMBER),
    "missing": N_("This field is required."),
    "greater_than": N_("Must be greater than %(gt)s."),
    "greater_than_equal": N_("Must be at least %(ge)s."),
    "less_than": N_("Must be less than %(lt)s."),
    "less_than_equal": N_("Must be at most %(le)s."),
    "string_too_short": N_("Too short: at least %(min_length)s characters."),
    "string_too_long": N_("Too long: at most %(max_length)s characters."),
    "too_short": N_("Too few: at least %(min_length)s."),
    "too_long": N_("Too many: at most %(max_length)s."),
    "enum": N_("Must be one of: %(expected)s."),
    "literal_error": N_("Must be one of: %(expected)s."),
}


def map_validation_errors(
    fields: Sequence[Field], submitted: Mapping[str, str], error: ValidationError
) -> dict[str, FieldError]:
    """Return the validation errors by field name."""
    found: dict[str, FieldError] = {}
    for each in error.errors(include_input=False, include_url=False):
        name, within = _find_field(fields, submitted, each["loc"])
        if name is not None:
            found.setdefault(name, _build_error(each, ".".join(map(str, within))))
    return found


def _find_field(
    fields: Sequence[Field], submitted: Mapping[str, str], location: Location
) -> tuple[str | None, Location]:
    """Return the field that this part of the value belongs to, and the path within it."""
    for field in visible_fields(fields):
        if field.key is None or location[:1] == (field.key,):
            within = location if field.key is None else location[1:]
            return _find_entry_field(field, submitted, within) or (field.name, within)
    return None, location


def _find_entry_field(field: Field, submitted: Mapping[str, str], within: Location) -> tuple[str, Location] | None:
    """Find the field in a list: entries that were cleared are not counted in the value."""
    entries = dict(enumerate(entry for entry in field.entries if not is_empty_entry(entry, submitted)))
    entry = next((entries[number] for number in within[:1] if isinstance(number, int) and number in entries), ())
    name, rest = _find_field(entry, submitted, within[1:])
    return None if name is None else (name, rest)


def _build_error(error: ErrorDetails, within: str) -> FieldError:
    """Return a translatable message, or pydantic's own."""
    about = error.get("ctx", {})
    is_empty = error["type"] == "string_too_short" and about.get("min_length") == 1
    name = _MESSAGE_BY_TYPE.get("missing" if is_empty else error["type"])
    if name is None:
        return FieldError("%(why)s", within, why=str(about.get("error", error["msg"])))
    values = {each: value for each, value in about.items() if each in _CONTEXT_KEYS}
    if "expected" in values:
        values["expected"] = values["expected"].replace("' or '", "', '")  # which only English says
    return FieldError(name, within, **values)
