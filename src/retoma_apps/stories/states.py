"""A story's status, from the states of its run and jobs. It is never stored, so that no late worker can change it."""

from __future__ import annotations

from collections.abc import Iterable
from enum import StrEnum

from retoma.records import StepProgress
from retoma.states import JobState, RunState
from retoma_apps.stories.pipeline import SCENE_STEPS


class Status(StrEnum):
    SCRIPTING = "scripting"
    PRODUCING = "producing"
    RENDERING = "rendering"
    READY_FOR_REVIEW = "ready_for_review"
    PUBLISHED = "published"
    FAILED = "failed"
    REJECTED = "rejected"
    CANCELLED = "cancelled"


# None: the status follows from the jobs.
STATUS_BY_RUN_STATE: dict[RunState, Status | None] = {
    RunState.PENDING: Status.SCRIPTING,
    RunState.RUNNING: None,
    RunState.PAUSED: None,
    RunState.NEEDS_REVIEW: None,
    RunState.STUCK: None,
    RunState.CANCELLING: Status.CANCELLED,
    RunState.COMPLETED: Status.PUBLISHED,
    RunState.COMPLETED_WITH_ERRORS: None,
    RunState.FAILED: Status.FAILED,
    RunState.REJECTED: Status.REJECTED,
    RunState.CANCELLED: Status.CANCELLED,
}
# The steps of each status, in order: the status is the first whose steps have not all succeeded. A story that was
# approved stays ready_for_review until its upload has ended.
_STEPS_BY_STATUS: dict[Status, tuple[str, ...]] = {
    Status.SCRIPTING: ("generate_script",),
    Status.PRODUCING: SCENE_STEPS,
    Status.RENDERING: ("render_scene", "render_video", "generate_thumbnails", "generate_metadata"),
    Status.READY_FOR_REVIEW: ("approval", "upload_youtube"),
}


def status_of(state: RunState, progress: Iterable[StepProgress]) -> Status:
    """Return the status. Every run state has exactly one for the same jobs."""
    if (status := STATUS_BY_RUN_STATE[state]) is not None:
        return status
    by_step = {each.step: each for each in progress}
    if state is RunState.COMPLETED_WITH_ERRORS:  # a person has skipped something
        return Status.PUBLISHED if _has_succeeded(by_step.get("upload_youtube")) else Status.FAILED
    return next(
        (
            status
            for status, steps in _STEPS_BY_STATUS.items()
            if not all(_has_succeeded(by_step.get(step)) for step in steps)
        ),
        Status.PUBLISHED,
    )


def _has_succeeded(step: StepProgress | None) -> bool:
    """Return whether all jobs of a step have succeeded. A fan-out over nothing has."""
    if step is None:
        return False
    return (step.each or step.total > 0) and step.jobs.get(JobState.SUCCEEDED, 0) == step.total
