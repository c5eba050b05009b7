"""How each state looks: its icon, its colour and the word for it. No colour stands alone."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class BadgeStyle:
    icon: str
    colour: str


_BADGE_STYLES = {
    # runs
    "pending": BadgeStyle("ring", "wait"),
    "running": BadgeStyle("run", "run"),
    "paused": BadgeStyle("hand", "human"),
    "needs_review": BadgeStyle("help", "human"),
    "stuck": BadgeStyle("stuck", "stuck"),
    "cancelling": BadgeStyle("canceling", "wait"),
    "completed": BadgeStyle("check", "ok"),
    "completed_with_errors": BadgeStyle("checkpart", "warn"),
    "failed": BadgeStyle("fail", "fail"),
    "rejected": BadgeStyle("reject", "fail"),
    "cancelled": BadgeStyle("cancel", "wait"),
    # jobs
    "waiting": BadgeStyle("dash", "wait"),
    "ready": BadgeStyle("ring", "wait"),
    "parked": BadgeStyle("park", "run"),
    "succeeded": BadgeStyle("check", "ok"),
    "skipped": BadgeStyle("skip", "wait"),
    "quarantined": BadgeStyle("lock", "fail"),
    "asked": BadgeStyle("hand", "human"),  # parked, because it waits for a person
    # reviews
    "open": BadgeStyle("hand", "human"),
    "approved": BadgeStyle("check", "ok"),
    "sent_back": BadgeStyle("back", "warn"),
    "expired": BadgeStyle("clock", "wait"),
    "withdrawn": BadgeStyle("gone", "wait"),
    # deliveries
    "due": BadgeStyle("clock", "wait"),
    "sending": BadgeStyle("send", "run"),
    "delivered": BadgeStyle("check", "ok"),
    "dead": BadgeStyle("dead", "fail"),
}


def get_badge_style(state: str) -> BadgeStyle:
    return _BADGE_STYLES[state]
