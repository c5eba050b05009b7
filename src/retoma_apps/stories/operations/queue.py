"""The queue of all stories: the jobs that are ready or running, by type."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from uuid import UUID

from retoma import Client
from retoma.records import Job, Run
from retoma.states import JobState, RunState
from retoma_apps.stories.pipeline import story

JOB_TYPES = (
    "generate_script",
    "generate_image",
    "generate_audio",
    "translate_scene",
    "render_video",
    "generate_thumbnails",
    "generate_metadata",
    "upload_youtube",
)
_TYPE_BY_STEP = {"render_scene": "render_video"}
_QUEUED = (JobState.READY, JobState.RUNNING)
_OPEN = [RunState.RUNNING, RunState.STUCK, RunState.PAUSED, RunState.NEEDS_REVIEW, RunState.CANCELLING]
MOST_STORIES = 200


@dataclass(frozen=True)
class QueuedJob:
    """A job of a story, of one of its scenes, or of a scene in a language. A clip is a part of `render_video`."""

    type: str
    story: UUID
    topic: str
    scene: str | None
    language: str | None
    state: JobState


@dataclass(frozen=True)
class Queue:
    """The ready and running jobs of the newest MOST_STORIES open stories, by type and then the oldest story first.

    `has_more_stories` says whether there are other open stories, whose jobs are not among them.
    """

    jobs: list[QueuedJob]
    has_more_stories: bool


async def get_queue(client: Client) -> Queue:
    runs = await client.runs.list(pipeline=story.name, states=_OPEN, limit=MOST_STORIES + 1)
    newest = reversed(runs[:MOST_STORIES])
    jobs = [each for run in newest for each in _list_queued(run, await client.runs.list_jobs(run.id))]
    return Queue(sorted(jobs, key=lambda job: JOB_TYPES.index(job.type)), len(runs) > MOST_STORIES)


def count_by_type(jobs: Sequence[QueuedJob]) -> dict[str, dict[str, int]]:
    """Return how many jobs of each type are ready and running."""
    return {
        kind: {str(state): sum(job.type == kind and job.state is state for job in jobs) for state in _QUEUED}
        for kind in JOB_TYPES
    }


def _list_queued(run: Run, jobs: Sequence[Job]) -> list[QueuedJob]:
    return [
        QueuedJob(
            _TYPE_BY_STEP.get(job.step, job.step),
            run.id,
            str(run.input["topic"]),
            job.item.partition("|")[0] or None,
            job.item.partition("|")[2] or None,
            job.state,
        )
        for job in jobs
        if job.state in _QUEUED and job.step in (*JOB_TYPES, *_TYPE_BY_STEP)
    ]
