"""The responses of the routes, for the OpenAPI document."""

from __future__ import annotations

from typing import Annotated

from pydantic import BaseModel, Field

from retoma.states import JobState
from retoma_apps.stories.models import Metadata
from retoma_apps.stories.states import Status

Timestamp = Annotated[str, Field(json_schema_extra={"format": "date-time"})]
FileUrl = Annotated[str, Field(json_schema_extra={"format": "uri-reference"})]


class StoryError(BaseModel):
    job_type: str
    scene_id: str | None
    code: str
    message: str


class StoryApproval(BaseModel):
    by: str = Field(description="The name of the API key, or of the person on the dashboard.")
    at: Timestamp
    via: str | None


class Story(BaseModel):
    id: str
    topic: str
    channel: str
    language: str = Field(description="The language of the narration.")
    languages: list[str] = Field(description="The languages of the translations.")
    status: Status
    revision: int
    scenes: int = Field(description="The number of scenes; 0 until the script is written.")
    scene_jobs_done: int = Field(description="How many images, recordings and translations have succeeded.")
    scene_jobs: int = Field(description="How many of them there are.")
    url: str | None = Field(description="The address of the published video.")
    earlier_urls: list[str] = Field(description="The addresses of videos that it replaced.")
    error: StoryError | None
    created_at: Timestamp
    ended_at: Timestamp | None


class StoryPage(BaseModel):
    stories: list[Story]
    next: str | None = Field(description="The value for `before`; null on the last page.")


class SceneJob(BaseModel):
    """A job of a scene."""

    job_type: str
    story_id: str
    scene_id: str
    language: str | None
    state: JobState
    code: str | None


class StoryScene(BaseModel):
    scene_id: str
    text: str
    visual: str
    image_url: FileUrl | None
    jobs: list[SceneJob]


class SubtitleTrack(BaseModel):
    language: str
    url: FileUrl


class StoryDetails(Story):
    scene_list: list[StoryScene]
    film_url: FileUrl | None
    subtitles: list[SubtitleTrack]
    thumbnail_urls: list[FileUrl]
    metadata: Metadata | None
    approval: StoryApproval | None = Field(description="Who approved it last, and when.")
    published_film_is_current: bool | None = Field(
        description="Whether the published video shows the current film; null if there is none."
    )
    refused: list[str] = Field(description="What the channel did not accept besides the film.")
    cost_micros: int = Field(description="What it has cost so far, in millionths of a US dollar.")


class QueuedStoryJob(BaseModel):
    job_type: str
    story_id: str
    scene_id: str | None
    language: str | None
    state: JobState


class JobQueue(BaseModel):
    counts: dict[str, dict[str, int]] = Field(description="The number of ready and running jobs by type.")
    has_more_stories: bool = Field(
        description="Whether there are other open stories than the newest 200, whose jobs these are."
    )
    jobs: list[QueuedStoryJob]
