"""How each state looks: its icon, its colour and the word for it. No colour stands alone."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class Look:
    icon: str
    colour: str


_LOOKS = {
    # runs
    "pending": Look("ring", "wait"),
    "running": Look("run", "run"),
    "paused": Look("hand", "human"),
    "needs_review": Look("help", "human"),
    "stuck": Look("stuck", "stuck"),
    "cancelling": Look("canceling", "wait"),
    "completed": Look("check", "ok"),
    "completed_with_errors": Look("checkpart", "warn"),
    "failed": Look("fail", "fail"),
    "rejected": Look("reject", "fail"),
    "cancelled": Look("cancel", "wait"),
    # jobs
    "waiting": Look("dash", "wait"),
    "ready": Look("ring", "wait"),
    "parked": Look("park", "run"),
    "succeeded": Look("check", "ok"),
    "skipped": Look("skip", "wait"),
    "quarantined": Look("lock", "fail"),
    "asked": Look("hand", "human"),  # parked, because it waits for a person
    # reviews
    "open": Look("hand", "human"),
    "approved": Look("check", "ok"),
    "sent_back": Look("back", "warn"),
    "expired": Look("clock", "wait"),
    "withdrawn": Look("gone", "wait"),
    # deliveries
    "due": Look("clock", "wait"),
    "sending": Look("send", "run"),
    "delivered": Look("check", "ok"),
    "dead": Look("dead", "fail"),
}


def looks(state: str) -> Look:
    return _LOOKS[state]
