"""The forms of an order and of a channel."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import UTC, datetime
from typing import TypeVar

from pydantic import BaseModel, ValidationError

from retoma.translations import Translator
from retoma_apps.providers.speech import KNOWN_VOICES
from retoma_apps.videos.models import Channel, Order
from retoma_apps.videos.pages.messages import FIELD_ERRORS
from retoma_apps.videos.voices import can_speak

TIME_FIELDS = ("start_at", "scheduled_for")
ORDER_FIELDS = ("topic", "channel", "language", *TIME_FIELDS)
CHANNEL_FIELDS = ("language", "voice", "style", "seconds", "budget", "account")
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


def empty_order_form(channel: str = "principal") -> Form:
    return Form(dict.fromkeys(ORDER_FIELDS, "") | {"channel": channel})


def channel_form(channel: Channel) -> Form:
    return Form({name: f"{value:g}" if isinstance(value, float) else str(value) for name, value in channel})


def submitted_fields(fields: Mapping[str, str], names: tuple[str, ...]) -> dict[str, str]:
    """Return the fields of this form."""
    return {name: fields.get(name, "").replace("\0", "").replace("\r\n", "\n").strip() for name in names}


def parse_order(fields: Mapping[str, str], translator: Translator) -> Order:
    """Raise `InvalidForm` if a field is wrong."""
    values = {name: value for name, value in fields.items() if value or name == "channel"}
    values |= {name: _parse_time(fields[name]) or fields[name] for name in TIME_FIELDS if fields[name]}
    return _validate(Order, values, translator, invalid={"topic"} - values.keys())


def parse_channel(
    fields: Mapping[str, str], translator: Translator, voices: Mapping[str, object], current_voice: str = ""
) -> Channel:
    """Raise `InvalidForm` if a field is wrong. The current voice is accepted even if it has no key."""
    values = {**fields, "budget": fields["budget"].replace(",", ".")}
    fits = can_speak(fields["voice"], fields["language"], voices, current_voice)
    return _validate(Channel, values, translator, invalid=set() if fits else {"voice"})


def list_voice_choices(voices: Mapping[str, object]) -> list[str]:
    """List known voices that have a key here; the form accepts others too."""
    return [name for name, known in KNOWN_VOICES.items() if known.provider in voices]


def _validate(kind: type[Model], values: Mapping[str, object], translator: Translator, invalid: set[str]) -> Model:
    wrong, made = set(invalid), None
    try:
        made = kind.model_validate(values)
    except ValidationError as error:
        wrong |= {str(each["loc"][0]) for each in error.errors()}
    if wrong or made is None:
        raise InvalidForm({name: translator.translate(FIELD_ERRORS[name]) for name in sorted(wrong)})
    return made


def _parse_time(text: str) -> str | None:
    """Return the time that a browser sends, which is in UTC by the label of its field."""
    try:
        at = datetime.fromisoformat(text)
        return (at if at.tzinfo else at.replace(tzinfo=UTC)).isoformat()
    except ValueError:
        return None
