"""The forms of an order and of a channel: what people write, and what is wrong with it."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import UTC, datetime
from typing import TypeVar

from pydantic import BaseModel, ValidationError

from retoma_apps.providers.speech import KNOWN
from retoma_apps.videos.models import Channel, Order
from retoma_apps.videos.pages.words import Words
from retoma_apps.videos.voices import can_speak

TIMES = ("start_at", "scheduled_for")
ORDER = ("topic", "channel", "language", *TIMES)
CHANNEL = ("language", "voice", "style", "seconds", "budget", "account")
Made = TypeVar("Made", bound=BaseModel)


@dataclass(frozen=True)
class Form:
    """What stands in the fields, and what is wrong with each. `is_bounced` if a colleague has saved meanwhile."""

    fields: dict[str, str]
    wrong: dict[str, str] = field(default_factory=dict)
    is_bounced: bool = False


class Wrong(Exception):
    """`found` are sentences by field."""

    def __init__(self, found: dict[str, str]) -> None:
        self.found = found


def empty_order(channel: str = "principal") -> Form:
    return Form(dict.fromkeys(ORDER, "") | {"channel": channel})


def of_channel(channel: Channel) -> Form:
    return Form({name: f"{value:g}" if isinstance(value, float) else str(value) for name, value in channel})


def written(fields: Mapping[str, str], names: tuple[str, ...]) -> dict[str, str]:
    """The fields of ours among those that came."""
    return {name: fields.get(name, "").replace("\0", "").replace("\r\n", "\n").strip() for name in names}


def read_order(given: Mapping[str, str], say: Words) -> Order:
    """Raises Wrong."""
    values = {name: value for name, value in given.items() if value or name == "channel"}
    values |= {name: _at(given[name]) or given[name] for name in TIMES if given[name]}
    return _checked(Order, values, say, others={"topic"} - values.keys())


def read_channel(given: Mapping[str, str], say: Words, voices: Mapping[str, object], kept: str = "") -> Channel:
    """Raises Wrong. The voice that is `kept` stays, whether or not there is a key for it."""
    values = {**given, "budget": given["budget"].replace(",", ".")}
    fits = can_speak(given["voice"], given["language"], voices, kept)
    return _checked(Channel, values, say, others=set() if fits else {"voice"})


def choices(voices: Mapping[str, object]) -> list[str]:
    """Known voices that can speak here; others can be written."""
    return [name for name, known in KNOWN.items() if known.provider in voices]


def _checked(kind: type[Made], values: Mapping[str, object], say: Words, others: set[str]) -> Made:
    wrong, made = set(others), None
    try:
        made = kind.model_validate(values)
    except ValidationError as error:
        wrong |= {str(each["loc"][0]) for each in error.errors()}
    if wrong or made is None:
        raise Wrong({name: say(f"wrong {name}") for name in sorted(wrong)})
    return made


def _at(given: str) -> str | None:
    """A moment as browsers write it, which people mean as UTC."""
    try:
        at = datetime.fromisoformat(given)
        return (at if at.tzinfo else at.replace(tzinfo=UTC)).isoformat()
    except ValueError:
        return None
