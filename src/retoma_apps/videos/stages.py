"""The word that a video shows to its owner, from how its run and its steps stand."""

from __future__ import annotations

from collections.abc import Collection
from enum import StrEnum

from retoma.states import RunState


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


_ENDS = {
    RunState.FAILED: Stage.FAILED,
    RunState.REJECTED: Stage.REJECTED,
    RunState.CANCELLED: Stage.CANCELLED,
    RunState.CANCELLING: Stage.CANCELLED,
    RunState.COMPLETED: Stage.PUBLISHED,
}
# The last of these steps that has a result says how far the video is.
_AFTER = {
    "publication": Stage.PUBLISHED,
    "upload": Stage.UPLOADED,
    "thumbnail_gen": Stage.READY,
    "broll_review": Stage.ASSEMBLING,
    "script_review": Stage.PRODUCING,
    "script_generation": Stage.SCRIPTED,
    "knowledge_query": Stage.RESEARCHING,
}


def stage_of(state: RunState, done: Collection[str], *, begun: bool = False) -> Stage:
    """`done` are the steps whose current jobs have succeeded; `begun` is whether any attempt has been made."""
    if state in _ENDS:
        return _ENDS[state]
    return next((stage for step, stage in _AFTER.items() if step in done), Stage.RESEARCHING if begun else Stage.DRAFT)
