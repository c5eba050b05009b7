"""The six states of an article's job, and the step that it has reached."""

from __future__ import annotations

from collections.abc import Iterable
from enum import StrEnum
from typing import assert_never

from retoma.records import Job, StepProgress
from retoma.states import JobState, RunState

STEPS = (
    "csv_parsed",
    "brief_created",
    "outline_created",
    "keywords_resolved",
    "meta_created",
    "title_slug_created",
    "headings_created",
    "content_created",
    "tags_created",
    "faq_created",
    "internal_links_created",
    "image_prompts_created",
    "images_resolved",
    "quality_gate_passed",
    "payload_ready",
    "published_wp",
)
"""The checkpoints, in the order in which callers know them. `csv_parsed` belongs to the import."""
_STEP_OF_REVIEW = {"quality_checked": "quality_gate_passed", "image_review": "published_wp"}


class ArticleState(StrEnum):
    PENDING = "pending"
    RUNNING = "running"
    NEEDS_REVIEW = "needs_review"
    FAILED = "failed"
    DONE = "done"
    CANCELED = "canceled"


def state_of(state: RunState, *, has_started: bool, is_published: bool) -> ArticleState:
    """Return the state of a job. It is pending until its first attempt starts.

    A run that ended with errors is done if its draft was published, and else failed.
    """
    match state:
        case RunState.PENDING:
            return ArticleState.PENDING
        case RunState.RUNNING | RunState.STUCK:
            return ArticleState.RUNNING if has_started else ArticleState.PENDING
        case RunState.CANCELLING:
            return ArticleState.RUNNING
        case RunState.NEEDS_REVIEW | RunState.PAUSED:
            return ArticleState.NEEDS_REVIEW
        case RunState.COMPLETED:
            return ArticleState.DONE
        case RunState.COMPLETED_WITH_ERRORS:
            return ArticleState.DONE if is_published else ArticleState.FAILED
        case RunState.FAILED:
            return ArticleState.FAILED
        case RunState.CANCELLED | RunState.REJECTED:
            return ArticleState.CANCELED
        case _:
            assert_never(state)


def states_of(state: ArticleState) -> list[RunState]:
    """Return the run states in which a job may have this state."""
    flags = (False, True)
    return [
        each
        for each in RunState
        if any(state_of(each, has_started=one, is_published=other) is state for one in flags for other in flags)
    ]


def step_of(jobs: Iterable[Job]) -> str | None:
    """Return the furthest checkpoint that has started, or None before the first."""
    return _find_furthest(job.step for job in jobs if job.attempt or _has_started(job.state))


def step_of_progress(steps: Iterable[StepProgress]) -> str | None:
    """Return the same from the progress of steps, which is quicker to load than their jobs."""
    return _find_furthest(each.step for each in steps if each.started_at or any(map(_has_started, each.jobs)))


def _find_furthest(started: Iterable[str]) -> str | None:
    reached = {_STEP_OF_REVIEW.get(step, step) for step in started}
    return next((step for step in reversed(STEPS) if step in reached), None)


def _has_started(state: JobState) -> bool:
    return state not in (JobState.WAITING, JobState.READY, JobState.CANCELLED, JobState.SKIPPED)
