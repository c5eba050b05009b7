"""One field of a form."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal

from retoma.translations import N_

Kind = Literal[
    "line", "text", "lines", "pairs", "whole", "number", "yes", "maybe", "choice", "entries", "hidden", "json"
]
TEXT_KINDS: tuple[Kind, ...] = ("line", "text")
ROOT_NAME = "value"
MISSING = object()
NOT_WHOLE = N_("Enter a whole number.")
NOT_A_NUMBER = N_("Enter a number.")


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
    that a hidden field keeps.
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

    @property
    def is_required(self) -> bool:
        return not self.nullable and not self.has_default


def visible_fields(fields: Iterable[Field]) -> list[Field]:
    return [field for field in fields if field.kind != "hidden"]


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
