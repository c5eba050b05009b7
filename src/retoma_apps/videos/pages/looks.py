"""How stages look: icons and colours of the engine's states, which no colour stands alone for."""

from __future__ import annotations

from typing import NamedTuple

from retoma_apps.videos.stages import Stage


class Look(NamedTuple):
    icon: str
    colour: str


STAGES: dict[Stage, Look] = {
    Stage.DRAFT: Look("ring", "wait"),
    Stage.RESEARCHING: Look("search", "run"),
    Stage.SCRIPTED: Look("script", "run"),
    Stage.PRODUCING: Look("wave", "run"),
    Stage.ASSEMBLING: Look("film", "run"),
    Stage.READY: Look("checkpart", "human"),
    Stage.UPLOADED: Look("send", "run"),
    Stage.PUBLISHED: Look("check", "ok"),
    Stage.FAILED: Look("fail", "fail"),
    Stage.REJECTED: Look("reject", "wait"),
    Stage.CANCELLED: Look("cancel", "wait"),
}
