"""Icons and colours of the states of articles. No colour is the only sign of a state."""

from __future__ import annotations

from retoma.server import BadgeStyle
from retoma_apps.autowriter.states import ArticleState

STATE_BADGES: dict[ArticleState, BadgeStyle] = {
    ArticleState.PENDING: BadgeStyle("ring", "wait"),
    ArticleState.RUNNING: BadgeStyle("run", "run"),
    ArticleState.NEEDS_REVIEW: BadgeStyle("hand", "human"),
    ArticleState.FAILED: BadgeStyle("fail", "fail"),
    ArticleState.DONE: BadgeStyle("check", "ok"),
    ArticleState.CANCELED: BadgeStyle("cancel", "wait"),
}
