"""The forms of an order, of a batch and of a channel."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from datetime import datetime, tzinfo

from retoma.translations import Translator
from retoma_apps.forms import Form, InvalidForm, validate_form
from retoma_apps.media.models import Channel
from retoma_apps.media.voices import can_speak
from retoma_apps.providers.speech import KNOWN_VOICES, VOICE_FORMS
from retoma_apps.videos.models import BatchOrder, Order, VideoOrder
from retoma_apps.videos.pages.messages import FIELD_ERRORS

TIME_FIELDS = ("start_at", "scheduled_for")
ORDER_FIELDS = ("topic", "channel", "language", *TIME_FIELDS)
BATCH_FIELDS = ("language", *TIME_FIELDS)
CHANNEL_FIELDS = ("language", "voice", "style", "seconds", "budget", "account")


def empty_order_form(channel: str = "principal", topic: str = "") -> Form:
    return Form(dict.fromkeys(ORDER_FIELDS, "") | {"channel": channel, "topic": topic})


def channel_form(channel: Channel) -> Form:
    return Form({name: f"{value:g}" if isinstance(value, float) else str(value) for name, value in channel})


def submitted_fields(fields: Mapping[str, str], names: tuple[str, ...]) -> dict[str, str]:
    """Return the fields of this form."""
    return {name: fields.get(name, "").replace("\0", "").replace("\r\n", "\n").strip() for name in names}


def parse_order(fields: Mapping[str, str], translator: Translator, zone: tzinfo) -> Order:
    """Raise `InvalidForm` if a field is wrong. Times are in the viewer's time zone."""
    values = {name: value for name, value in fields.items() if value or name == "channel"}
    values |= {name: _parse_time(fields[name], zone) or fields[name] for name in TIME_FIELDS if fields[name]}
    errors = _describe_errors({"topic"} - values.keys(), translator)
    return validate_form(Order, values, errors, FIELD_ERRORS, translator)


def empty_batch_form(channels: Sequence[str]) -> Form:
    """Return a form with a row for each channel, and one for a new channel."""
    rows = {f"channel-{number}": name for number, name in enumerate([*channels, ""])}
    return Form(dict.fromkeys(BATCH_FIELDS, "") | rows)


def list_batch_rows(fields: Mapping[str, str]) -> list[tuple[str, str, str]]:
    """Return the number of each row, its channel and its topics, one per line."""
    numbers = [name.removeprefix("channel-") for name in fields if name.startswith("channel-")]
    return [(number, fields[f"channel-{number}"], fields.get(f"topic-{number}", "")) for number in numbers]


def submitted_batch_fields(fields: Mapping[str, str]) -> dict[str, str]:
    rows = [name for name in fields if name.startswith(("channel-", "topic-"))]
    return submitted_fields(fields, (*BATCH_FIELDS, *rows))


def parse_batch(fields: Mapping[str, str], translator: Translator, zone: tzinfo) -> BatchOrder:
    """Return one video for each topic. Raise `InvalidForm` if a field is wrong; rows without topics are ignored."""
    times = {name: _parse_time(fields[name], zone) or fields[name] or None for name in TIME_FIELDS}
    common = {"language": fields["language"] or None, "scheduled_for": times["scheduled_for"]}
    errors: dict[str, str] = {}
    videos: list[VideoOrder] = []
    for number, channel, topics in list_batch_rows(fields):
        for topic in filter(None, map(str.strip, topics.splitlines())):
            values = common | {"channel": channel, "topic": topic}
            try:
                videos.append(validate_form(VideoOrder, values, {}, FIELD_ERRORS, translator))
            except InvalidForm as error:
                errors |= {
                    f"{name}-{number}" if name in ("topic", "channel") else name: message
                    for name, message in error.errors.items()
                }
    if errors:
        raise InvalidForm(errors)
    return validate_form(
        BatchOrder, {"videos": videos, "start_at": times["start_at"]}, errors, FIELD_ERRORS, translator
    )


def parse_channel(
    fields: Mapping[str, str], translator: Translator, voices: Mapping[str, object], current_voice: str = ""
) -> Channel:
    """Raise `InvalidForm` if a field is wrong. The current voice is accepted even if it has no key."""
    values = {**fields, "budget": fields["budget"].replace(",", ".")}
    fits = can_speak(fields["voice"], fields["language"], voices, current_voice)
    errors = _describe_errors(set() if fits else {"voice"}, translator)
    return validate_form(Channel, values, errors, FIELD_ERRORS, translator)


def list_voice_choices(voices: Mapping[str, object]) -> list[str]:
    """List known voices that have a key here; the form accepts others too."""
    return [name for name, known in KNOWN_VOICES.items() if known.provider in voices]


def list_voice_forms(voices: Mapping[str, object]) -> list[str]:
    """List how other voices are named that have a key here."""
    return [form for provider, form in VOICE_FORMS.items() if provider in voices]


def _describe_errors(names: set[str], translator: Translator) -> dict[str, str]:
    return {name: translator.translate(FIELD_ERRORS[name]) for name in names}


def _parse_time(text: str, zone: tzinfo) -> str | None:
    """Return the time that a browser sends, without its zone."""
    try:
        at = datetime.fromisoformat(text)
        return (at if at.tzinfo else at.replace(tzinfo=zone)).isoformat()
    except ValueError:
        return None
