"""The icon, the colour and the name of each state. No colour is the only sign of a state."""

from __future__ import annotations

from dataclasses import dataclass

from retoma.translations import NP_


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

STATE_NAMES = {
    "pending": NP_("state", "Pending"),
    "running": NP_("state", "Running"),
    "paused": NP_("state", "Waiting for review"),
    "needs_review": NP_("state", "Needs help"),
    "stuck": NP_("state", "Stuck"),
    "cancelling": NP_("state", "Cancelling"),
    "completed": NP_("state", "Completed"),
    "completed_with_errors": NP_("state", "Completed with errors"),
    "failed": NP_("state", "Failed"),
    "rejected": NP_("state", "Rejected"),
    "cancelled": NP_("state", "Cancelled"),
    "waiting": NP_("state", "Waiting"),
    "ready": NP_("state", "Ready"),
    "parked": NP_("state", "External work"),
    "asked": NP_("state", "Waiting for review"),
    "open": NP_("state", "Open"),
    "approved": NP_("state", "Approved"),
    "sent_back": NP_("state", "Sent back"),
    "expired": NP_("state", "Expired"),
    "withdrawn": NP_("state", "Withdrawn"),
    "succeeded": NP_("state", "Succeeded"),
    "skipped": NP_("state", "Skipped"),
    "quarantined": NP_("state", "Quarantined"),
    "due": NP_("state", "Due"),
    "sending": NP_("state", "Sending"),
    "delivered": NP_("state", "Delivered"),
    "dead": NP_("state", "Dead letter"),
}


def get_badge_style(state: str) -> BadgeStyle:
    return _BADGE_STYLES[state]
