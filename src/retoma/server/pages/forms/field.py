"""One field of a form."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import UTC, datetime, tzinfo
from typing import Any, Literal

from retoma.translations import N_

Kind = Literal[
    "line", "text", "lines", "pairs", "whole", "number", "yes", "maybe", "choice", "moment", "entries", "hidden", "json"
]
TEXT_KINDS: tuple[Kind, ...] = ("line", "text")
ROOT_NAME = "value"
MISSING = object()
NOT_WHOLE = N_("Enter a whole number.")
NOT_A_NUMBER = N_("Enter a number.")
NOT_A_MOMENT = N_("Enter a date and time, such as 2026-02-04T12:00.")


class FieldError(ValueError):
    """The text does not fit its field. `message` is a marked source string, `values` are its values.

    `path` names the part of the field that is wrong.
    """

    def __init__(self, message: str, path: str = "", **values: Any) -> None:
        super().__init__(message)
        self.message = message
        self.path = path
        self.values = values


@dataclass(frozen=True)
class Field:
    """`name` is its name in the form, `text` its content, `key` its property, or None if it is the whole value.

    `error` is the message about it. `entries` are the fields of each object of a list, `hidden_value` is the value
    that a hidden field keeps. `steps` are the only steps that the field is for, if the schema names any. The text of a
    moment is in `zone`.
    """

    name: str
    key: str | None
    label: str
    hint: str
    kind: Kind
    text: str
    nullable: bool = False
    has_default: bool = False
    choices: tuple[str, ...] = ()
    max_length: int | None = None
    error: str = ""
    entries: tuple[tuple[Field, ...], ...] = ()
    hidden_value: Any = None
    steps: tuple[str, ...] = ()
    zone: tzinfo = UTC

    @property
    def is_required(self) -> bool:
        return not self.nullable and not self.has_default


def visible_fields(fields: Iterable[Field]) -> list[Field]:
    return [field for field in fields if field.kind != "hidden"]


def format_moment(at: datetime) -> str:
    """Return the text that the control of a browser takes, which has no zone."""
    return at.replace(tzinfo=None).isoformat(timespec="minutes")


def offer_choices(fields: Iterable[Field], choices: Mapping[str, Sequence[str]]) -> list[Field]:
    """Return the fields with these choices, by field name, in place of a text of one line."""
    return [
        _offer(field, choices[field.name]) if field.kind == "line" and choices.get(field.name) else field
        for field in fields
    ]


def _offer(field: Field, choices: Sequence[str]) -> Field:
    """Return the field as a choice, which includes what it has."""
    offered = dict.fromkeys([*choices, *filter(None, [field.text])])
    return replace(field, kind="choice", hint="", choices=tuple(offered))


def set_zone(fields: Iterable[Field], zone: tzinfo) -> list[Field]:
    """Return the fields with their moments in this time zone."""
    return [_set_zone(field, zone) for field in fields]


def _set_zone(field: Field, zone: tzinfo) -> Field:
    entries = tuple(tuple(set_zone(entry, zone)) for entry in field.entries)
    if field.kind != "moment":
        return replace(field, entries=entries)
    at = datetime.fromisoformat(field.text).replace(tzinfo=field.zone) if field.text else None
    return replace(field, zone=zone, text="" if at is None else format_moment(at.astimezone(zone)))


def iterate_controls(fields: Iterable[Field]) -> Iterator[Field]:
    """Those that a person types into."""
    for field in visible_fields(fields):
        yield from (each for entry in field.entries for each in iterate_controls(entry)) if field.entries else [field]


def get_text(field: Field, submitted: Mapping[str, str]) -> str:
    """Texts by name may also be typed one by one, each in a control called `field.name`."""
    text, prefix = submitted.get(field.name, ""), f"{field.name}."
    if field.kind != "pairs":
        return text
    each = [f"{name.removeprefix(prefix)}: {one}" for name, one in submitted.items() if name.startswith(prefix) and one]
    return "\n".join([*each, *([text] if text else [])])


def is_empty_entry(entry: Sequence[Field], submitted: Mapping[str, str]) -> bool:
    """Return whether all its texts are empty."""
    return not any(get_text(field, submitted).strip() for field in entry if field.kind in TEXT_KINDS)
