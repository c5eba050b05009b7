"""The data that passes between the steps of a video."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Annotated, Literal, Self, TypeVar

from pydantic import (
    AfterValidator,
    AwareDatetime,
    BaseModel,
    ConfigDict,
    Field,
    JsonValue,
    ValidationInfo,
    field_validator,
    model_validator,
)

from retoma import File
from retoma.translations import N_
from retoma_apps.media import spoken_text
from retoma_apps.media.models import (
    LONGEST_THUMBNAIL_TEXT,
    MOST_THUMBNAILS,
    ChannelName,
    Defaults,
    Language,
    Line,
    Topic,
)
from retoma_apps.providers.speech import KNOWN_VOICES, VOICE_FORMS, find_speaker

Share = Annotated[float, Field(ge=0, le=1)]
LAST_YEAR = 9000


def _to_utc(at: datetime) -> datetime:
    if at.year > LAST_YEAR:
        raise ValueError(f"the year can be at most {LAST_YEAR}")
    try:
        return at.astimezone(UTC)
    except OverflowError:
        raise ValueError("this date does not exist in UTC") from None


def _check_voice(name: str | None) -> str | None:
    if name:
        find_speaker(name)  # raises UnknownVoice, which lists the known ones
    return name


UtcDatetime = Annotated[AwareDatetime, AfterValidator(_to_utc)]
MAX_BATCH_VIDEOS = 200
HIDDEN: dict[str, JsonValue] = {"hidden": True}  # in the form for editing a result
WITHOUT_COMMENTS: dict[str, JsonValue] = {"comments": False}  # comments on moments would have no effect


class FrozenModel(BaseModel):
    model_config = ConfigDict(frozen=True)


class Brief(Defaults):
    """The input of one video: its topic, and its channel's settings at the time of the order."""

    topic: Topic
    scheduled_for: UtcDatetime | None = None

    @model_validator(mode="after")
    def _can_be_spoken(self) -> Self:
        if self.voice and not find_speaker(self.voice).speaks(self.language):
            raise ValueError(f"voice: {self.voice!r} does not speak {self.language}: choose another, or none")
        return self


Origin = Literal["model_memory", "fetched_page", "offline_facts", "unknown"]


class Source(FrozenModel):
    """The source of a fact. `verified` only if a page was downloaded and contains the statement."""

    name: str = Field(title=N_("Name"), max_length=200)
    url: str = Field("", title=N_("Address"), max_length=2000, json_schema_extra={"format": "uri-reference"})
    confidence: Share = Field(0.0, title=N_("Confidence, 0 to 1"))
    origin: Origin = Field("unknown", json_schema_extra=HIDDEN)
    verified: bool = Field(False, json_schema_extra=HIDDEN)


class Fact(FrozenModel):
    text: str = Field(min_length=1, max_length=2000)
    source: Source


class KnownFacts(FrozenModel):
    """The facts in the knowledge base about the topic."""

    facts: list[Fact] = []


class WithFeedbackHistory(FrozenModel):
    """`feedback_history` is the feedback of reviewers so far for this topic and language, newest last."""

    topic: str = Field("", json_schema_extra=HIDDEN)
    language: Language = Field("pt-BR", json_schema_extra=HIDDEN)
    feedback_history: list[str] = Field([], json_schema_extra=HIDDEN)


class Research(WithFeedbackHistory):
    """All facts for the script; the first `reused` of them were known before."""

    facts: list[Fact]
    reused: int = 0


class Scene(FrozenModel):
    """A passage of the narration, and its picture."""

    text: str = Field(title=N_("Text"), min_length=1, max_length=10_000)
    visual: str = Field(title=N_("Visual"), min_length=1, max_length=200)


class Issue(FrozenModel):
    code: str
    text: str
    blocking: bool = False


class Quality(FrozenModel):
    passed: bool
    readability_score: Annotated[float, Field(ge=0, le=10)]
    visual_markers: int
    issues: list[Issue] = []


class Script(WithFeedbackHistory):
    title: str = Field(title=N_("Title"), min_length=1, max_length=100)
    scenes: list[Scene] = Field(title=N_("Scenes"), min_length=1, max_length=200)
    description: str = Field("", title=N_("Description"), max_length=4500)
    tags: list[Annotated[str, Field(max_length=60)]] = Field([], title=N_("Tags"), max_length=30)
    word_count: int = Field(0, validate_default=True, json_schema_extra=HIDDEN)
    seconds: int | None = Field(None, description="The target length.", json_schema_extra=HIDDEN)
    sources: list[Source] = Field([], title=N_("Sources"))
    facts_used: int = Field(0, json_schema_extra=HIDDEN)
    facts: list[str] = Field([], description="The texts of the facts that it uses.", json_schema_extra=HIDDEN)
    knowledge_reuse_rate: Share = Field(0.0, json_schema_extra=HIDDEN)
    not_understood: list[str] = Field([], description="Feedback that it does not follow.", json_schema_extra=HIDDEN)
    quality: Quality = Field(
        Quality(passed=True, readability_score=0, visual_markers=0), validate_default=True, json_schema_extra=HIDDEN
    )

    @property
    def text(self) -> str:
        return "\n\n".join(scene.text for scene in self.scenes)

    @field_validator("word_count")
    @classmethod
    def _count_words(cls, _: int, info: ValidationInfo) -> int:
        """Count the words of the scenes and ignore the input: an edited script still has its previous count."""
        return sum(spoken_text.word_count(scene.text) for scene in info.data.get("scenes", []))

    @field_validator("quality")
    @classmethod
    def _compute_quality(cls, quality: Quality, info: ValidationInfo) -> Quality:
        """Assess the current text, for the same reason."""
        from retoma_apps.videos.steps.writing.quality import assess_quality  # it imports this module

        fields = info.data
        whole = cls.model_fields.keys() - {"quality"} <= fields.keys()
        return (
            assess_quality(cls.model_construct(**fields), fields["language"], fields["seconds"]) if whole else quality
        )


class Narration(FrozenModel):
    """`scene_starts` has the start of each scene in seconds.

    `ordered_voice` is the voice of the order, which may be empty, whatever reviewers have requested since.
    """

    model_config = ConfigDict(frozen=True, json_schema_extra=HIDDEN)

    audio: File
    seconds: float
    voice: str
    ordered_voice: str = ""
    rate: float = 1.0
    lines: list[Line]
    scene_starts: list[float]


class Clip(FrozenModel):
    """A clip for the scene with this number.

    It is shown for `seconds`, and loops if the footage is shorter: `own_seconds`, 0 if unknown.
    """

    id: str = ""
    video: File
    thumbnail: File
    source: str
    query: str
    seconds: float
    own_seconds: float = 0
    relevance: Share
    scene: int
    author: str = ""
    url: str = ""

    @property
    def filled_seconds(self) -> float:
        """How long it shows new frames."""
        return min(self.own_seconds or self.seconds, self.seconds)


class Broll(FrozenModel):
    """`coverage` is the share of the narration with new frames, in per cent.

    `refused` are the ids of clips that reviewers replaced: they are not used again.
    """

    model_config = ConfigDict(frozen=True, json_schema_extra=HIDDEN)

    clips: list[Clip]
    total_seconds: float
    audio_seconds: float
    coverage: float
    credits: list[str] = Field([], validate_default=True, description="Lines to put below the description.")
    refused: list[str] = []

    @field_validator("credits")
    @classmethod
    def _compute_credits(cls, _: list[str], info: ValidationInfo) -> list[str]:
        """List the clips' authors, as the footage's licence requires, and ignore the input."""
        clips: list[Clip] = info.data.get("clips", [])
        return list(dict.fromkeys(f"{clip.author} ({clip.source}): {clip.url}" for clip in clips if clip.url))


class Assembly(FrozenModel):
    """`subtitles` is whether they are burned in."""

    video: File
    seconds: float
    width: int
    height: int
    size: int
    subtitles: bool = True


class Subtitles(FrozenModel):
    srt: File
    vtt: File


class Thumbnail(FrozenModel):
    image: File
    text: str


class Thumbnails(WithFeedbackHistory):
    """`texts` are the reviewers' texts for the first thumbnails."""

    variants: list[Thumbnail]
    texts: list[str] = []


class FeedbackForm(FrozenModel):
    """The fields that work may be sent back with, besides notes."""

    model_config = ConfigDict(frozen=True, extra="forbid")


class NarrationFeedback(FeedbackForm):
    voice: Annotated[str | None, AfterValidator(_check_voice)] = Field(
        None,
        title=N_("Voice"),
        max_length=100,
        description=N_("The name of another voice."),
        examples=[*KNOWN_VOICES, *VOICE_FORMS.values()],
        json_schema_extra={"steps": ["audio_generation"]},
    )
    rate: float | None = Field(
        None,
        title=N_("Speed"),
        ge=0.6,
        le=1.6,
        description=N_("1 is the voice's normal speed; from 0.6 to 1.6. Or write “faster” or “slower” in the notes."),
        json_schema_extra={"steps": ["audio_generation"]},
    )


class FootageFeedback(FeedbackForm):
    """New searches for clips, by number."""

    model_config = ConfigDict(frozen=True, extra="forbid", json_schema_extra=WITHOUT_COMMENTS)

    queries: dict[Annotated[str, Field(pattern=r"^[1-9][0-9]{0,4}$")], Annotated[str, Field(max_length=200)]] = Field(
        {},
        title=N_("Other searches"),
        description=N_("New searches for clips, by the number of the clip."),
        json_schema_extra={"steps": ["broll_search"]},
    )


Value = TypeVar("Value")


class FinalFeedback(NarrationFeedback, FootageFeedback):
    """The fields of every step that the final review can go back to."""

    model_config = ConfigDict(frozen=True, extra="forbid", json_schema_extra=None)

    subtitles: bool | None = Field(
        None,
        title=N_("Subtitles in the film"),
        description=N_(
            "Whether the new film has them burned in; if left out, as before. Or write “without subtitles” or “with "
            "subtitles” in the notes."
        ),
        json_schema_extra={"steps": ["video_assembly"]},
    )
    thumbnail_texts: list[Annotated[str, Field(min_length=1, max_length=LONGEST_THUMBNAIL_TEXT)]] = Field(
        [],
        title=N_("Words on the thumbnails"),
        max_length=MOST_THUMBNAILS,
        description=N_(
            "Words for the new thumbnails: the first, the second and the third. Describe the picture behind them in "
            "the notes."
        ),
        json_schema_extra={"steps": ["thumbnail_gen"]},
    )

    @field_validator("*")
    @classmethod
    def _check_has_effect(cls, value: Value, info: ValidationInfo) -> Value:
        target = (info.context or {}).get("to")
        about = cls.model_fields[info.field_name or ""].json_schema_extra
        steps = about["steps"] if isinstance(about, dict) else []
        if target and value not in (None, [], {}) and isinstance(steps, list) and steps and target not in steps:
            raise ValueError(f"it has no effect on {target}, which the work goes back to")
        return value


class FinalChoice(FrozenModel):
    """A person's final choice: one of the thumbnails, counted from 1, the texts, and when the video is published."""

    thumbnail: int = Field(title=N_("Thumbnail"), ge=1, le=MOST_THUMBNAILS)
    title: str | None = Field(None, title=N_("Title"), min_length=1, max_length=100)
    description: str | None = Field(None, title=N_("Description"), max_length=4500)
    tags: list[Annotated[str, Field(max_length=60)]] | None = Field(None, title=N_("Tags"), max_length=30)
    scheduled_for: UtcDatetime | None = Field(
        None,
        title=N_("Publish at"),
        description=N_("Empty: the time of the order. A time that has passed: as soon as it is approved."),
    )


class Upload(FrozenModel):
    """`thumbnail_refused` is why the channel accepted the video but not its thumbnail."""

    video_id: str
    url: str
    account: str = ""
    channel: str
    title: str
    uploaded_at: datetime
    publish_at: datetime | None = None
    thumbnail_refused: str | None = None


class Analytics(FrozenModel):
    """The basis for a video's analytics."""

    video_id: str
    url: str
    title: str
    channel: str
    language: Language
    seconds: float
    words: int
    began_at: datetime


class Publication(FrozenModel):
    url: str
    published_at: datetime


class VideoOrder(BaseModel):
    """A request for one video of a batch."""

    model_config = ConfigDict(extra="forbid")

    topic: Topic
    channel: ChannelName = "principal"
    language: Language | None = None
    scheduled_for: UtcDatetime | None = None


class Order(VideoOrder):
    """A request for a video."""

    start_at: UtcDatetime | None = Field(
        None, description="When work starts; default: now. Until then the video is `pending`."
    )
    webhook_url: str | None = Field(None, max_length=2000, description="The URL to notify when the video ends.")


class BatchOrder(BaseModel):
    """A request for many videos, of one channel or of several."""

    model_config = ConfigDict(extra="forbid")

    videos: list[VideoOrder] = Field(min_length=1, max_length=MAX_BATCH_VIDEOS)
    start_at: UtcDatetime | None = Field(None, description="When work starts on all of them; default: now.")
    webhook_url: str | None = Field(None, max_length=2000, description="The URL to notify when all videos have ended.")


class PlannedVideo(FrozenModel):
    """A video of a batch: its channel, and the input of its run."""

    channel: ChannelName
    brief: Brief


class Batch(FrozenModel):
    """The input of a batch, in the order of the request."""

    videos: list[PlannedVideo] = Field(min_length=1, max_length=MAX_BATCH_VIDEOS)

    @property
    def channels(self) -> list[str]:
        return list(dict.fromkeys(video.channel for video in self.videos))
