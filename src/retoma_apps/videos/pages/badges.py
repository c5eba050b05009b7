"""Icons and colours of stages. No colour is the only sign of a stage."""

from __future__ import annotations

from typing import NamedTuple

from retoma_apps.videos.stages import Stage


class Badge(NamedTuple):
    icon: str
    colour: str


STAGE_BADGES: dict[Stage, Badge] = {
    Stage.DRAFT: Badge("ring", "wait"),
    Stage.RESEARCHING: Badge("search", "run"),
    Stage.SCRIPTED: Badge("script", "run"),
    Stage.PRODUCING: Badge("wave", "run"),
    Stage.ASSEMBLING: Badge("film", "run"),
    Stage.READY: Badge("checkpart", "human"),
    Stage.UPLOADED: Badge("send", "run"),
    Stage.PUBLISHED: Badge("check", "ok"),
    Stage.FAILED: Badge("fail", "fail"),
    Stage.REJECTED: Badge("reject", "wait"),
    Stage.CANCELLED: Badge("cancel", "wait"),
}
