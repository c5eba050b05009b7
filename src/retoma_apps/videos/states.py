"""A video's title and stage, from the states of its run and steps."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping
from enum import StrEnum
from itertools import takewhile
from typing import Any

from retoma.records import Job
from retoma.states import JobState, RunState
from retoma_apps.videos.pipeline import longform


class Stage(StrEnum):
    DRAFT = "draft"
    RESEARCHING = "researching"
    SCRIPTED = "scripted"
    PRODUCING = "producing"
    ASSEMBLING = "assembling"
    READY = "ready"
    UPLOADED = "uploaded"
    PUBLISHED = "published"
    FAILED = "failed"
    REJECTED = "rejected"
    CANCELLED = "cancelled"


# None: the stage follows from the steps.
STAGE_BY_RUN_STATE: dict[RunState, Stage | None] = {
    RunState.PENDING: None,
    RunState.RUNNING: None,
    RunState.PAUSED: None,
    RunState.NEEDS_REVIEW: None,
    RunState.STUCK: None,
    RunState.CANCELLING: Stage.CANCELLED,
    RunState.COMPLETED: Stage.PUBLISHED,
    RunState.COMPLETED_WITH_ERRORS: None,
    RunState.FAILED: Stage.FAILED,
    RunState.REJECTED: Stage.REJECTED,
    RunState.CANCELLED: Stage.CANCELLED,
}
# The stage follows from the last of these steps with a result.
_STAGE_BY_LAST_STEP = {
    "publication": Stage.PUBLISHED,
    "upload": Stage.UPLOADED,
    "thumbnail_gen": Stage.READY,
    "broll_review": Stage.ASSEMBLING,
    "script_review": Stage.PRODUCING,
    "script_generation": Stage.SCRIPTED,
    "knowledge_query": Stage.RESEARCHING,
}


def current_results(jobs: Iterable[Job]) -> dict[str, Any]:
    """Return results by step, up to the first without one: later results are stale, or from the forked video."""
    by_step = {job.step: job for job in jobs}
    current = (by_step[step] for step in longform.steps if step in by_step)
    return {job.step: job.output for job in takewhile(lambda job: job.state is JobState.SUCCEEDED, current)}


def title_of(done: Mapping[str, Any]) -> str | None:
    """Return the title of the final review, else that of the script."""
    words = [done.get(step) or {} for step in ("final_review", "script_review", "script_generation")]
    return next((each["title"] for each in words if each.get("title")), None)


def stage_of(state: RunState, done: Collection[str], *, started: bool = False) -> Stage:
    """Return the stage. `done` are the steps from `current_results`; `started` is whether any attempt was made."""
    return STAGE_BY_RUN_STATE[state] or next(
        (stage for step, stage in _STAGE_BY_LAST_STEP.items() if step in done),
        Stage.RESEARCHING if started else Stage.DRAFT,
    )
