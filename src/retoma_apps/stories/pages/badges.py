"""Icons and colours of statuses. No colour is the only sign of a status."""

from __future__ import annotations

from retoma.server import BadgeStyle
from retoma_apps.stories.states import Status

STATUS_BADGES: dict[Status, BadgeStyle] = {
    Status.SCRIPTING: BadgeStyle("script", "run"),
    Status.PRODUCING: BadgeStyle("image", "run"),
    Status.RENDERING: BadgeStyle("film", "run"),
    Status.READY_FOR_REVIEW: BadgeStyle("hand", "human"),
    Status.PUBLISHED: BadgeStyle("check", "ok"),
    Status.FAILED: BadgeStyle("fail", "fail"),
    Status.REJECTED: BadgeStyle("reject", "wait"),
    Status.CANCELLED: BadgeStyle("cancel", "wait"),
}
