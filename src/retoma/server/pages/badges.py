"""The icon, the colour and the name of each state. No colour is the only sign of a state."""

from __future__ import annotations

from dataclasses import dataclass

from retoma.states import JobState
from retoma.translations import NP_, Message


@dataclass(frozen=True)
class BadgeStyle:
    """An icon of the pages, and one of their colours. Applications use it for their own states."""

    icon: str
    colour: str


@dataclass(frozen=True)
class StateBadge(BadgeStyle):
    """The badge of a state, with the state's name."""

    name: Message


STATE_BADGES = {
    # runs
    "pending": StateBadge("ring", "wait", NP_("state", "Pending")),
    "running": StateBadge("run", "run", NP_("state", "Running")),
    "paused": StateBadge("hand", "human", NP_("state", "Paused for review")),
    "needs_review": StateBadge("help", "human", NP_("state", "Needs review")),
    "stuck": StateBadge("stuck", "stuck", NP_("state", "Stuck")),
    "cancelling": StateBadge("canceling", "wait", NP_("state", "Cancelling")),
    "completed": StateBadge("check", "ok", NP_("state", "Completed")),
    "completed_with_errors": StateBadge("checkpart", "warn", NP_("state", "Completed with errors")),
    "failed": StateBadge("fail", "fail", NP_("state", "Failed")),
    "rejected": StateBadge("reject", "fail", NP_("state", "Rejected")),
    "cancelled": StateBadge("cancel", "wait", NP_("state", "Cancelled")),
    # jobs
    "waiting": StateBadge("dash", "wait", NP_("state", "Waiting")),
    "ready": StateBadge("ring", "wait", NP_("state", "Ready")),
    "parked": StateBadge("park", "run", NP_("state", "External work")),
    "succeeded": StateBadge("check", "ok", NP_("state", "Succeeded")),
    "skipped": StateBadge("skip", "wait", NP_("state", "Skipped")),
    "quarantined": StateBadge("lock", "fail", NP_("state", "Quarantined")),
    "in_review": StateBadge("hand", "human", NP_("state", "Waiting for review")),  # parked until a person decides
    "not_needed": StateBadge("skip", "wait", NP_("state", "Not needed")),  # steps without jobs at the end of the run
    "not_run": StateBadge("dash", "wait", NP_("state", "Not run")),
    "waiting_for_child": StateBadge("park", "run", NP_("state", "Waiting for child run")),  # parked for its child run
    # reviews
    "open": StateBadge("hand", "human", NP_("state", "Open")),
    "approved": StateBadge("check", "ok", NP_("state", "Approved")),
    "sent_back": StateBadge("back", "warn", NP_("state", "Sent back")),
    "expired": StateBadge("clock", "wait", NP_("state", "Expired")),
    "withdrawn": StateBadge("gone", "wait", NP_("state", "Withdrawn")),
    # deliveries
    "due": StateBadge("clock", "wait", NP_("state", "Due")),
    "sending": StateBadge("send", "run", NP_("state", "Sending")),
    "delivered": StateBadge("check", "ok", NP_("state", "Delivered")),
    "dead": StateBadge("dead", "fail", NP_("state", "Dead letter")),
}

# Where the state of a job has another gender in Portuguese than that of a run.
JOB_STATE_NAMES = {"cancelled": NP_("job state", "Cancelled")}


def get_badge_style(state: str) -> BadgeStyle:
    return STATE_BADGES[state]


def get_state_name(state: str) -> Message:
    if isinstance(state, JobState) and state in JOB_STATE_NAMES:
        return JOB_STATE_NAMES[state]
    return STATE_BADGES[state].name
