"""What films of all applications have in common: their channels, languages, topics and subtitles."""

from __future__ import annotations

from typing import Annotated, Literal

from pydantic import AfterValidator, BaseModel, ConfigDict, Field

from retoma_apps.providers.account_names import is_account

Language = Literal["pt-BR", "en"]
SHORTEST_TOPIC = 3
WITHOUT_NUL = r"^[^\x00]*$"
MOST_THUMBNAILS = 3
LONGEST_THUMBNAIL_TEXT = 300
"""The longest text that fits on a thumbnail."""


def is_channel_name(name: str) -> bool:
    """Return whether the name fits in a URL path, which ends at a slash however it is quoted."""
    return (
        0 < len(name) <= 100
        and not name.isspace()
        and name.isprintable()
        and name not in (".", "..")
        and "/" not in name
    )


def _check_channel_name(name: str) -> str:
    if not is_channel_name(name):
        raise ValueError("a channel's name has 1 to 100 printable characters and no slash")
    return name


ChannelName = Annotated[str, Field(min_length=1, max_length=100), AfterValidator(_check_channel_name)]


def _check_topic(topic: str) -> str:
    if len(topic.strip()) < SHORTEST_TOPIC or not any(map(str.isalnum, topic)) or "\0" in topic:
        raise ValueError(f"describe what the video is about, in at least {SHORTEST_TOPIC} characters")
    return topic


def _check_account(name: str) -> str:
    if not is_account(name):
        raise ValueError("the account names an environment variable: use only Latin letters and digits")
    return name


Topic = Annotated[str, Field(min_length=SHORTEST_TOPIC, max_length=300), AfterValidator(_check_topic)]


class FrozenModel(BaseModel):
    model_config = ConfigDict(frozen=True)


class Defaults(FrozenModel):
    """The settings that a video takes from its channel. `budget` is US dollars per video, `seconds` the target
    length."""

    language: Language = "pt-BR"
    voice: str = Field(
        "", max_length=100, pattern=WITHOUT_NUL, description="Default: the default voice of the language."
    )
    style: str = Field("", max_length=500, pattern=WITHOUT_NUL, description="The style of the text, in your own words.")
    seconds: int = Field(60, ge=20, le=3600)
    budget: float = Field(5.0, ge=0, le=10_000)


class Channel(Defaults):
    """The settings of a channel. The account is never part of an input, which anyone who starts or forks could
    change."""

    account: Annotated[str, AfterValidator(_check_account)] = Field(
        "", max_length=100, pattern=WITHOUT_NUL, description="The YouTube account that publishes the videos."
    )


class Line(FrozenModel):
    """A subtitle; times are seconds of the narration."""

    text: str
    start: float
    end: float
