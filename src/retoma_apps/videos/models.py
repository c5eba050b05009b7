"""What passes between the steps of a video."""

from __future__ import annotations

from datetime import datetime
from typing import Annotated, Literal, Self

from pydantic import AwareDatetime, BaseModel, ConfigDict, Field, model_validator

from retoma import File

Language = Literal["pt-BR", "en"]
Share = Annotated[float, Field(ge=0, le=1)]


class Part(BaseModel):
    model_config = ConfigDict(frozen=True)


class Channel(Part):
    """What a channel's videos have in common. `budget` is in US dollars for one video, `seconds` the wanted length."""

    language: Language = "pt-BR"
    voice: str = Field("", max_length=100, description="Empty: the usual voice of the language.")
    style: str = Field("", max_length=500, description="How it should sound, in words.")
    seconds: int = Field(60, ge=20, le=3600)
    budget: float = Field(5.0, ge=0, le=10_000)
    account: str = Field("", max_length=100, description="Which YouTube account it is published with.")


class Brief(Channel):
    """What one video is to be: its topic, and its channel's defaults as they were when it was ordered."""

    topic: str = Field(min_length=3, max_length=300)
    channel: str = Field("principal", min_length=1, max_length=100)
    scheduled_for: AwareDatetime | None = None


class Source(Part):
    name: str = Field(max_length=200)
    url: str = Field("", max_length=2000)
    confidence: Share = 0.5


class Fact(Part):
    text: str = Field(min_length=1, max_length=2000)
    source: Source


class Known(Part):
    """What the knowledge base had on the topic."""

    facts: list[Fact] = []


class Research(Part):
    """All facts there are for the script; the first `reused` of them were known before."""

    facts: list[Fact]
    reused: int = 0


class Scene(Part):
    """A passage of the narration, and what is to be seen during it."""

    text: str = Field(min_length=1, max_length=10_000)
    visual: str = Field(min_length=1, max_length=200)


class Issue(Part):
    code: str
    text: str
    blocking: bool = False


class Quality(Part):
    passed: bool
    readability_score: Annotated[float, Field(ge=0, le=10)]
    visual_markers: int
    issues: list[Issue] = []


class Script(Part):
    title: str = Field(min_length=1, max_length=100)
    scenes: list[Scene] = Field(min_length=1, max_length=200)
    description: str = Field("", max_length=4500)
    tags: list[Annotated[str, Field(max_length=60)]] = Field([], max_length=30)
    word_count: int = 0
    quality: Quality = Quality(passed=True, readability_score=0, visual_markers=0)
    sources: list[Source] = []
    facts_used: int = 0
    facts: list[str] = Field([], description="Those that it uses, in their own words.")
    knowledge_reuse_rate: Share = 0.0

    @property
    def text(self) -> str:
        return "\n\n".join(scene.text for scene in self.scenes)


class Line(Part):
    """A subtitle, in seconds of the narration."""

    text: str
    start: float
    end: float


class Narration(Part):
    """`scene_starts` has where each scene of the script begins, in seconds."""

    audio: File
    seconds: float
    voice: str
    rate: float = 1.0
    lines: list[Line]
    scene_starts: list[float]


class Clip(Part):
    """A piece of footage for the scene of this number."""

    id: str = ""
    video: File
    thumbnail: File
    source: str
    query: str
    seconds: float
    relevance: Share
    scene: int
    author: str = ""
    url: str = ""


class Broll(Part):
    """`coverage` is how much of the narration has a clip of its own, in per cent."""

    clips: list[Clip]
    total_seconds: float
    audio_seconds: float
    coverage: float


class Assembly(Part):
    video: File
    seconds: float
    width: int
    height: int
    size: int


class Subtitles(Part):
    srt: File
    vtt: File


class Thumbnail(Part):
    image: File
    text: str


class Thumbnails(Part):
    variants: list[Thumbnail]


class Wishes(Part):
    """What work may be sent back with, beside notes."""

    model_config = ConfigDict(frozen=True, extra="forbid")


class NarrationWishes(Wishes):
    voice: str | None = Field(
        None,
        max_length=100,
        description="Another voice, by its name.",
        json_schema_extra={"pt": {"title": "Voz", "description": "Outra voz, pelo nome."}},
    )
    rate: float | None = Field(
        None,
        ge=0.6,
        le=1.6,
        description="1 is as the voice speaks by itself; from 0.6 to 1.6.",
        json_schema_extra={
            "pt": {"title": "Velocidade", "description": "1 é como a voz fala por si; de 0,6 a 1,6."},
            "en": {"title": "Speed"},
        },
    )


class FootageWishes(Wishes):
    """For clips, by number, what to look for instead."""

    queries: dict[Annotated[str, Field(pattern=r"^[0-9]{1,5}$")], Annotated[str, Field(max_length=200)]] = {}


class FilmWishes(Wishes):
    subtitles: bool = Field(
        True,
        description="Whether the film that is made anew has them burned in.",
        json_schema_extra={
            "pt": {"title": "Legendas no filme", "description": "Se o filme refeito as traz gravadas na imagem."},
            "en": {"title": "Subtitles in the film"},
        },
    )


class FinalChoice(Part):
    """What a person decides at the end: one of the thumbnails, counted from 1, and the words beside the video."""

    thumbnail: int = Field(ge=1, le=3)
    title: str | None = Field(None, min_length=1, max_length=100)
    description: str | None = Field(None, max_length=4500)
    tags: list[Annotated[str, Field(max_length=60)]] | None = Field(None, max_length=30)


class Upload(Part):
    video_id: str
    url: str
    channel: str
    publish_at: datetime | None = None


class Analytics(Part):
    """What the video's figures are counted from."""

    video_id: str
    url: str
    title: str
    channel: str
    language: Language
    seconds: float
    words: int
    began_at: datetime


class Publication(Part):
    url: str
    published_at: datetime


class Order(BaseModel):
    """What a caller asks for."""

    model_config = ConfigDict(extra="forbid")

    topic: str = Field(min_length=3, max_length=300)
    channel: str = Field("principal", min_length=1, max_length=100)
    language: Language | None = None
    scheduled_for: AwareDatetime | None = None
    webhook_url: str | None = Field(None, max_length=2000, description="Who is told how it ended.")

    @model_validator(mode="after")
    def _says_something(self) -> Self:
        if not self.topic.strip():
            raise ValueError("topic: say what the video is about")
        return self
