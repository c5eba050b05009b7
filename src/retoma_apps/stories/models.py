"""The data that passes between the steps of a story."""

from __future__ import annotations

import unicodedata
from datetime import datetime
from typing import Annotated

from pydantic import AfterValidator, BaseModel, ConfigDict, Field, JsonValue

from retoma import File
from retoma.translations import N_
from retoma_apps.media.models import MOST_THUMBNAILS, WITHOUT_NUL, ChannelName, Language, Line, Topic

DEFAULT_SCENES = 15
MOST_SCENES = 100
MOST_LANGUAGES = 20
LONGEST_TITLE = 100
HIDDEN: dict[str, JsonValue] = {"hidden": True}  # in the form for editing a result


def _check_distinct(languages: list[str]) -> list[str]:
    if len({each.casefold() for each in languages}) < len(languages):
        raise ValueError("name each language once")
    return languages


def _check_title(title: str) -> str:
    if title.isspace() or any(unicodedata.category(letter) == "Cc" for letter in title):
        raise ValueError("a title is one line of visible characters")
    return title


LanguageTag = Annotated[
    str, Field(pattern=r"^[A-Za-z]{2,3}(-[A-Za-z0-9]{2,8}){0,2}$", max_length=20, examples=["en", "pt-BR", "es"])
]
Languages = Annotated[list[LanguageTag], Field(max_length=MOST_LANGUAGES), AfterValidator(_check_distinct)]
SceneCount = Annotated[int, Field(ge=1, le=MOST_SCENES)]
Title = Annotated[str, Field(min_length=1, max_length=LONGEST_TITLE), AfterValidator(_check_title)]
Description = Annotated[str, Field(max_length=4500, pattern=WITHOUT_NUL)]
Tags = Annotated[list[Annotated[str, Field(max_length=60, pattern=WITHOUT_NUL)]], Field(max_length=30)]


class FrozenModel(BaseModel):
    model_config = ConfigDict(frozen=True)


class Order(BaseModel):
    """A request for a story."""

    model_config = ConfigDict(extra="forbid")

    topic: Topic
    scenes: SceneCount = Field(DEFAULT_SCENES, description="The number of scenes.")
    languages: Languages = Field([], description="The languages of translations, as BCP 47 tags such as `en`.")
    channel: ChannelName = "principal"


class Brief(FrozenModel):
    """The input of a story: the order, and the settings of its channel at that time. `language` is that of the
    narration, and `languages` those of the translations."""

    topic: Topic
    scenes: SceneCount = DEFAULT_SCENES
    language: Language = "pt-BR"
    languages: Languages = []
    voice: str = Field("", max_length=100, pattern=WITHOUT_NUL)
    style: str = Field("", max_length=500, pattern=WITHOUT_NUL)


class Scene(FrozenModel):
    """A passage of the narration, and its picture. `id` is its number, from 1."""

    id: str = Field(json_schema_extra=HIDDEN, pattern=r"^[1-9][0-9]{0,4}$")
    text: str = Field(title=N_("Text"), min_length=1, max_length=5_000)
    visual: str = Field(title=N_("Picture"), min_length=1, max_length=300)


Scenes = Annotated[list[Scene], Field(min_length=1, max_length=MOST_SCENES)]


class SceneImage(FrozenModel):
    image: File


class SceneAudio(FrozenModel):
    """Times of the subtitles are seconds of this recording."""

    audio: File
    seconds: float
    lines: list[Line]


class SceneTranslation(FrozenModel):
    scene: str = Field(json_schema_extra=HIDDEN)
    language: LanguageTag = Field(json_schema_extra=HIDDEN)
    text: str = Field(title=N_("Text"), min_length=1, max_length=10_000)


class SceneClip(FrozenModel):
    """The moving picture of a scene, without sound. It lasts longer than the speech, so that there is a pause."""

    video: File
    seconds: float


class Track(FrozenModel):
    """The subtitles in one language."""

    language: LanguageTag = Field(title=N_("Language"))
    srt: File
    vtt: File


class Film(FrozenModel):
    """`starts` has the start of each scene in seconds. The first track is in the language of the narration."""

    video: File = Field(title=N_("Video"))
    seconds: float = Field(title=N_("Seconds"))
    width: int = Field(title=N_("Width"))
    height: int = Field(title=N_("Height"))
    size: int = Field(title=N_("Size"))
    starts: list[float] = Field(title=N_("Starts"))
    tracks: list[Track] = Field(title=N_("Tracks"))


class Thumbnail(FrozenModel):
    image: File = Field(title=N_("Image"))
    text: str = Field(title=N_("Text"))


class Thumbnails(FrozenModel):
    variants: list[Thumbnail] = Field(title=N_("Variants"))


class Texts(FrozenModel):
    title: Title
    description: Description = ""


class Metadata(Texts):
    """`localizations` has the title and the description in each language of the translations."""

    title: Title = Field(title=N_("Title"))
    description: Description = Field("", title=N_("Description"))
    tags: Tags = Field([], title=N_("Tags"))
    localizations: dict[LanguageTag, Texts] = Field({}, title=N_("Localizations"), json_schema_extra=HIDDEN)


class Approval(FrozenModel):
    """A person's decision to publish: one of the thumbnails, counted from 1, and the texts if they are to differ.

    A published story keeps its video, and only texts, thumbnail and subtitles change, unless `new_video` is set.
    """

    thumbnail: int = Field(1, title=N_("Thumbnail"), ge=1, le=MOST_THUMBNAILS)
    title: Title | None = Field(None, title=N_("Title"))
    description: Description | None = Field(None, title=N_("Description"))
    tags: Tags | None = Field(None, title=N_("Tags"))
    new_video: bool = Field(
        False,
        title=N_("Publish as a new video"),
        description=N_("Only for a story that was published before: the earlier video stays where it is."),
    )


class Upload(FrozenModel):
    """The published video. `film` is the digest of the film that it shows, and `starts` its scenes.

    `earlier` has the addresses of videos that this one replaced. `refused` says what the channel did not accept
    besides the film: the thumbnail or a subtitle track.
    """

    video_id: str
    url: str
    account: str = ""
    channel: str
    title: str
    uploaded_at: datetime
    film: str
    starts: list[float]
    is_current_film: bool = True
    tracks: list[LanguageTag] = []
    earlier: list[str] = []
    refused: list[str] = []
