"""Forms of an application's own pages: the text of each field, and what is wrong with it."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import TypeVar

from pydantic import BaseModel, ValidationError

from retoma.translations import Translator

Model = TypeVar("Model", bound=BaseModel)


@dataclass(frozen=True)
class Form:
    """The text of each field and what is wrong with it. `has_conflict` if someone else saved in the meantime."""

    fields: dict[str, str]
    errors: dict[str, str] = field(default_factory=dict)
    has_conflict: bool = False


class InvalidForm(Exception):
    """`errors` are messages by field."""

    def __init__(self, errors: dict[str, str]) -> None:
        self.errors = errors


def parse_revision(text: str) -> int:
    """Return the revision that a form was filled in for, or one that conflicts with all if the text has none."""
    return int(text) if text.isascii() and text.isdigit() and len(text) < 10 else -1


def validate_form(
    kind: type[Model],
    values: Mapping[str, object],
    errors: Mapping[str, str],
    messages: Mapping[str, str],
    translator: Translator,
) -> Model:
    """Return the model of these values, or raise `InvalidForm` with the `errors` so far and those of the model, which
    `messages` describe by field."""
    wrong, made = dict(errors), None
    try:
        made = kind.model_validate(values)
    except ValidationError as error:
        for name in sorted({str(each["loc"][0]) for each in error.errors()}):
            wrong.setdefault(name, translator.translate(messages[name]))
    if wrong or made is None:
        raise InvalidForm(wrong)
    return made
