"""When a review of an application is due, and what happens if nobody decides it."""

from __future__ import annotations

from datetime import timedelta
from typing import TypedDict

from retoma import hours


class ReviewTimes(TypedDict):
    due: timedelta
    remind: timedelta
    escalate: timedelta
    escalate_to: str


REVIEW_TIMES: ReviewTimes = {"due": hours(2), "remind": hours(2), "escalate": hours(4), "escalate_to": "editor"}
"""A review should be decided within two hours; then a reminder is sent, and later it is assigned to the editor."""
