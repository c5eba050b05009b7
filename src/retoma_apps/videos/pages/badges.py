"""Icons and colours of stages. No colour is the only sign of a stage."""

from __future__ import annotations

from retoma.server import BadgeStyle
from retoma_apps.videos.states import Stage

STAGE_BADGES: dict[Stage, BadgeStyle] = {
    Stage.DRAFT: BadgeStyle("ring", "wait"),
    Stage.RESEARCHING: BadgeStyle("search", "run"),
    Stage.SCRIPTED: BadgeStyle("script", "run"),
    Stage.PRODUCING: BadgeStyle("wave", "run"),
    Stage.ASSEMBLING: BadgeStyle("film", "run"),
    Stage.READY: BadgeStyle("checkpart", "human"),
    Stage.UPLOADED: BadgeStyle("send", "run"),
    Stage.PUBLISHED: BadgeStyle("check", "ok"),
    Stage.FAILED: BadgeStyle("fail", "fail"),
    Stage.REJECTED: BadgeStyle("reject", "wait"),
    Stage.CANCELLED: BadgeStyle("cancel", "wait"),
}
