"""What changed since the previous revision of a review's subjects, and what reviewers asked for."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime
from typing import Any

from retoma.records import Review, Subject
from retoma.server.pages import forms
from retoma.server.pages.page_context import PageContext
from retoma.server.pages.result_changes import Change, list_changes
from retoma.server.pages.review_history import format_feedback
from retoma.states import ReviewState

MAX_REQUESTS = 100  # that a run's reviews are searched for


@dataclass(frozen=True)
class StepChanges:
    """The changes of one step's result since an earlier revision."""

    step: str
    since: int
    changes: list[Change]


@dataclass(frozen=True)
class Request:
    """What a reviewer sent the work back with, besides comments. `step` is the review, `to` the step."""

    by: str
    at: datetime
    step: str
    to: str
    text: str


def list_step_changes(
    context: PageContext, review: Review, subjects: Mapping[str, Subject], previous: Mapping[str, Subject]
) -> list[StepChanges]:
    """List the changes of each subject that has a previous revision, also of those that stayed the same.

    A subject whose fields that changed are all hidden is left out: a reader cannot be told that it is the same.
    """
    found = [
        StepChanges(
            step,
            previous[step].revision,
            compare_results(context, review.pipeline, step, previous[step].value, subject.value),
        )
        for step, subject in subjects.items()
        if step in previous
    ]
    return [each for each in found if each.changes or previous[each.step].value == subjects[each.step].value]


def compare_results(context: PageContext, pipeline: str, step: str, before: Any, now: Any) -> list[Change]:
    """List the changes of a step's result under the labels of its type, if this server knows it."""
    known = context.find_pipeline(pipeline)
    returned = known.steps[step].returns if known and step in known.steps else None
    return list_changes(before, now, forms.build_schema(returned), context.gettext)


async def list_requests(context: PageContext, review: Review, previous: Mapping[str, Subject]) -> list[Request]:
    """List what reviewers asked for since the oldest revision that the subjects are compared with, the newest first."""
    if not previous:
        return []
    since = min(subject.revision for subject in previous.values())
    found = await context.client.reviews.list(run=review.run, states=[ReviewState.SENT_BACK], limit=MAX_REQUESTS)
    relevant = [each for each in found if since <= each.revision < review.revision and each.item in ("", review.item)]
    return [_build_request(context, each) for each in reversed(relevant)]


def _build_request(context: PageContext, sent_back: Review) -> Request:
    feedback = {**(sent_back.feedback or {}), "comments": [], "items": sent_back.back_items}
    parts = [sent_back.notes or "", format_feedback(context, sent_back.pipeline, sent_back.step, feedback)]
    assert sent_back.decided_at is not None
    return Request(
        sent_back.decided_by or "",
        sent_back.decided_at,
        sent_back.step,
        sent_back.back_to or "",
        "\n".join(filter(None, parts)),
    )
