"""The responses of the routes, for the OpenAPI document."""

from __future__ import annotations

from typing import Annotated, Any, Literal

from pydantic import BaseModel, Field

from retoma.states import RunState
from retoma_apps.media.models import Language, Line
from retoma_apps.videos.models import Analytics, Quality, Scene, Source
from retoma_apps.videos.states import Stage

Timestamp = Annotated[str, Field(json_schema_extra={"format": "date-time"})]
FileUrl = Annotated[str, Field(json_schema_extra={"format": "uri-reference"})]


class OpenCheckpoint(BaseModel):
    id: str
    type: str


class Video(BaseModel):
    id: str
    topic: str
    title: str | None
    channel: str
    batch_id: str | None = Field(description="The batch that ordered it, if any.")
    language: Language
    stage: Stage
    status: RunState
    current_step: str | None
    error_message: str | None
    revision: int
    steps_done: list[str]
    start_at: Timestamp | None = Field(description="When work starts or started, if the video was ordered for later.")
    scheduled_for: Timestamp | None
    checkpoint: OpenCheckpoint | None = Field(description="The open checkpoint.")
    url: str | None = Field(description="The address of the published video.")
    thumbnail_refused: str | None = Field(description="Why the channel accepted the video but not its thumbnail.")
    analytics: Analytics | None = Field(
        description="Recorded after the upload, as a basis for analytics. Views are not fetched."
    )
    created_at: Timestamp
    ended_at: Timestamp | None


class VideoPage(BaseModel):
    videos: list[Video]
    next: str | None = Field(description="The value for `before`; null on the last page.")


class BatchSummary(BaseModel):
    """The id is that of the batch's run, which the routes of runs accept too."""

    id: str
    status: RunState
    total: int = Field(description="The number of videos in the order.")
    published: int
    failed: int = Field(description="The number of videos that failed, were rejected or were cancelled.")
    in_review: int = Field(description="The number of videos that wait for a review. The batch is running meanwhile.")
    cost_micros: int = Field(description="What all its videos have cost so far, in millionths of a US dollar.")
    start_at: Timestamp | None = Field(description="When work starts or started, if the batch was ordered for later.")
    created_at: Timestamp
    ended_at: Timestamp | None


class BatchVideo(BaseModel):
    number: int = Field(description="The place in the order, from 1.")
    channel: str
    topic: str
    language: Language
    scheduled_for: Timestamp | None
    video_id: str | None = Field(description="Null until the video has started.")
    status: RunState = Field(description="`pending` until the video has started.")
    error_message: str | None


class Batch(BatchSummary):
    videos: list[BatchVideo]


class BatchPage(BaseModel):
    batches: list[BatchSummary]
    next: str | None = Field(description="The value for `before`; null on the last page.")


class CheckpointSummary(BaseModel):
    checkpoint_id: str
    checkpoint_type: str
    video_id: str
    video_title: str
    channel: str
    revision: int
    opened_at: Timestamp
    due_at: Timestamp | None
    script_preview: str


class CheckpointPage(BaseModel):
    batch: list[CheckpointSummary]
    total_pending: int
    next: str | None = Field(description="The value for `after`; null on the last page.")


class CheckpointOutcome(BaseModel):
    checkpoint_id: str
    status: Literal["approved", "error"]
    code: str | None = None
    error: str | None = None


class CheckpointOutcomes(BaseModel):
    results: list[CheckpointOutcome]
    approved: int = Field(description="The number of approved checkpoints.")


class ScriptData(BaseModel):
    topic: str
    title: str
    script_full: str
    scenes: list[Scene]
    word_count: int
    quality_report: Quality
    research_sources: list[Source]
    facts_used: int
    knowledge_reuse_rate: float


class NarrationData(BaseModel):
    audio_url: FileUrl
    duration_seconds: float
    voice_used: str
    rate: float
    script_text: str
    lines: list[Line]


class ClipData(BaseModel):
    number: int
    thumbnail_url: FileUrl
    preview_url: FileUrl
    source: str
    query_used: str
    duration_seconds: float
    own_duration_seconds: float
    relevance_score: float
    scene: int
    author: str
    url: str


class FootageData(BaseModel):
    clips: list[ClipData]
    total_clips: int
    total_duration: float
    audio_duration: float
    coverage_percentage: float


class ThumbnailData(BaseModel):
    number: int
    url: FileUrl
    text: str


class PublicationData(BaseModel):
    title: str
    description: str
    tags: list[str]


class FinalData(BaseModel):
    video_preview_url: FileUrl
    duration_seconds: float
    resolution: str
    file_size_mb: float
    subtitles: bool
    thumbnail_variants: list[ThumbnailData]
    metadata: PublicationData
    credits: list[str]
    scheduled_for: Timestamp | None


class HelpData(BaseModel):
    """The data of a step that asked a person for help."""

    topic: str
    reason: Any


class Checkpoint(BaseModel):
    checkpoint_id: str
    checkpoint_type: str
    video_id: str
    channel: str
    status: str = Field(description="`pending` while it is open, then the decision.")
    revision: int = Field(description="Send it back as `seen`.")
    opened_at: Timestamp
    due_at: Timestamp | None
    reviewer: str | None
    reviewer_notes: str | None
    reviewed_at: Timestamp | None
    decided: dict[str, Any] | None = Field(description="The decision besides its notes.")
    can_go_back_to: list[str]
    times_sent_back: int
    data: ScriptData | NarrationData | FootageData | FinalData | HelpData = Field(
        description="The data for the decision, by `checkpoint_type`."
    )
