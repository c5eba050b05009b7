"""Decisions of people on reviews: they are checked here, and the database accepts the first."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import timedelta
from typing import Any
from uuid import uuid4

from pydantic import BaseModel, ValidationError
from pydantic_core import to_jsonable_python

from retoma.define.codec import MAX_RESULT_BYTES, count_bytes, describe_validation_error
from retoma.define.pipeline import Pipeline
from retoma.define.review import Comment, Feedback
from retoma.engine.result_types import check_result
from retoma.errors import (
    AlreadyDecided,
    Conflict,
    InvalidInput,
    KeyReused,
    NotFound,
    RevisionChanged,
    SendBackNotAllowed,
)
from retoma.records import Review
from retoma.states import ReviewState
from retoma.store import reviews, runs
from retoma.store.database import Database
from retoma.store.reviews import ReviewFilter

MAX_NOTES_LENGTH = 20_000
MAX_COMMENTS = 500
MAX_ITEMS = 10_000
MAX_UNDO = timedelta(hours=1)
_STATES = {"approve": ReviewState.APPROVED, "send_back": ReviewState.SENT_BACK, "reject": ReviewState.REJECTED}
ACTIONS = tuple(_STATES)
_NUL = re.compile(r"(?<!\\)(?:\\\\)*\\u0000")
_UNCHANGED = object()


@dataclass(frozen=True)
class Decision:
    """`approve`, `send_back` or `reject`, with its author and the revision that they saw.

    `value` replaces the subject, or answers the review's form. `to` is the step that the work goes back to, `items`
    limits it to some items, `comments` are about moments of a recording, and `extra` answers the feedback form. A
    decision with the same `key` is the same decision. It takes effect after `undo`.
    """

    action: str
    by: str
    seen: int | None = None
    value: Any = _UNCHANGED
    notes: str = ""
    to: str | None = None
    items: Sequence[str] | None = None
    comments: Sequence[Comment] = ()
    key: str | None = None
    via: str = "client"
    undo: timedelta = timedelta(0)
    extra: Mapping[str, Any] = field(default_factory=dict)

    @property
    def edits(self) -> bool:
        return self.value is not _UNCHANGED


async def decide(
    database: Database,
    review: Review,
    tenant: int | None,
    decision: Decision,
    pipeline: Pipeline | None,
    resources: Mapping[str, Any] | None = None,
    person: int | None = None,
) -> None:
    """Raise InvalidInput, FeedbackNotSupported, AlreadyDecided with the first decision, KeyReused, or Conflict.

    `person` is the number of who decides, if it is a person with an account.
    """
    decision = replace(decision, extra=_validate_extra(review, decision, pipeline))
    _check_decision(decision, review)
    await _check_feedback_supported(database, review, decision, pipeline, resources or {})
    value = await _encode_approved_value(database, review, decision, pipeline) if decision.action == "approve" else None
    outcome = await reviews.decide_review(
        database,
        review.id,
        tenant=tenant,
        state=_STATES[decision.action],
        by=decision.by,
        via=decision.via,
        seen=review.revision if decision.seen is None else decision.seen,
        key=decision.key or str(uuid4()),  # a retry after a lost answer is then the same decision
        value=value,
        notes=decision.notes or None,
        feedback=_encode_feedback(decision),
        to=decision.to,
        items=None if decision.items is None else list(decision.items),
        undo=decision.undo,
        person=person,
    )
    if outcome not in ("decided", "same"):
        raise await _build_refusal(database, review, decision, outcome)


def encode_answers(decision: Decision) -> list[str]:
    """Return what the reviewer entered, as JSON. `decide` refuses what cannot be JSON."""
    answers = [decision.extra, *([decision.value] if decision.edits else [])]
    return [json.dumps(to_jsonable_python(each, fallback=str)) for each in answers]


def get_form(review: Review, pipeline: Pipeline | None) -> Any:
    """Return the type of the approved value, or None if this application does not define the step."""
    step = pipeline.steps.get(review.step) if pipeline else None
    return None if step is None else step.returns


def has_form(review: Review, pipeline: Pipeline | None) -> bool:
    step = pipeline.steps.get(review.step) if pipeline else None
    return bool(step and step.review and step.review.has_form and review.planned)


def get_feedback_form(review: Review, pipeline: Pipeline | None) -> type[BaseModel] | None:
    """Return the form to fill in, besides notes, to send the work back."""
    step = pipeline.steps.get(review.step) if pipeline else None
    return step.review.feedback_form if step and step.review and review.planned else None


async def _encode_approved_value(
    database: Database, review: Review, decision: Decision, pipeline: Pipeline | None
) -> str | None:
    """Return the approved value as JSON, checked by its type, or None to approve the subject unchanged."""
    if review.passed_budget is not None:
        if decision.edits:
            raise InvalidInput(f"{review.step!r} waits because of a budget: approve it without a value, and it runs")
        return None
    if not decision.edits and pipeline is None and review.has_form:
        raise InvalidInput(
            f"{review.step!r} has a form: fill it in, with the application that checks it "
            "(`retoma reviews approve --value JSON --app APP`), or approve it on its page"
        )
    if not decision.edits and not has_form(review, pipeline):
        return None
    try:
        text = json.dumps(to_jsonable_python(decision.value if decision.edits else {}), allow_nan=False)
        return _check_size(check_result(pipeline, review.pipeline, review.step, text))
    except (ValueError, TypeError) as error:
        raise InvalidInput(f"not a valid result for {review.step!r}: {describe_validation_error(error)}") from error


def _validate_extra(review: Review, decision: Decision, pipeline: Pipeline | None) -> dict[str, Any]:
    """Return the answers to the feedback form, checked if this application defines it."""
    if pipeline is None or decision.action != "send_back":
        return dict(decision.extra)
    form = get_feedback_form(review, pipeline)
    if form is None:
        if decision.extra:
            raise InvalidInput(
                f"{review.step!r} has no feedback form; use the notes instead of {', '.join(decision.extra)}"
            )
        return {}
    about = {"to": _get_target_step(review, decision), "review": review, "comments": decision.comments}
    try:
        return form.model_validate(decision.extra, context=about).model_dump(mode="json", exclude_defaults=True)
    except ValidationError as error:
        raise InvalidInput(f"not valid feedback for {review.step!r}: {describe_validation_error(error)}") from error


def _get_target_step(review: Review, decision: Decision) -> str:
    """Return the step that the work goes back to."""
    return decision.to or next(iter(review.can_send_back_to), review.step)


def _check_decision(decision: Decision, review: Review) -> None:
    if decision.action not in _STATES:
        raise InvalidInput(f"decide a review with {', '.join(ACTIONS)}, not {decision.action!r:.40}")
    if not decision.by.strip():
        raise InvalidInput("a decision needs an author: set `by`")
    if len(decision.notes) > MAX_NOTES_LENGTH:
        raise InvalidInput(f"notes may have at most {MAX_NOTES_LENGTH:,} characters, not {len(decision.notes):,}")
    if decision.action == "reject" and not decision.notes.strip():
        raise InvalidInput("give the reason for the rejection in the notes")
    has_feedback = decision.notes.strip() or decision.comments or decision.items or decision.extra
    if decision.action == "send_back" and not has_feedback:
        raise InvalidInput("describe in the notes what to improve, or mark the items to improve")
    if len(decision.comments) > MAX_COMMENTS or len(decision.items or ()) > MAX_ITEMS:
        raise InvalidInput(f"a decision may have at most {MAX_COMMENTS} comments and {MAX_ITEMS:,} items")
    if not timedelta(0) <= decision.undo <= MAX_UNDO:
        raise InvalidInput(f"a decision can be undone for at most {MAX_UNDO}")
    if decision.to is not None and decision.action != "send_back":
        raise InvalidInput(f"`to` is only for send_back, not for {decision.action} of {review.step!r}")


async def _check_feedback_supported(
    database: Database,
    review: Review,
    decision: Decision,
    pipeline: Pipeline | None,
    resources: Mapping[str, Any],
) -> None:
    """Raise FeedbackNotSupported if the step that the work goes back to declares that it cannot use this feedback.

    Reviews that are already decided are left to the database, which knows whether this is the same decision again.
    """
    target = _get_target_step(review, decision)
    step = pipeline.steps.get(target) if pipeline else None
    needs_check = (
        decision.action == "send_back" and review.is_open and review.planned and target in review.can_send_back_to
    )
    if not needs_check or step is None or step.feedback is None:
        return
    feedback = Feedback(
        decision.notes, decision.by, review.step, tuple(decision.items or ()), tuple(decision.comments), decision.extra
    )
    run = await runs.get_run(database, review.run)
    known = {**(run.input or {} if run else {}), **await runs.get_results(database, review.run)}
    step.feedback(feedback, known, resources)


def _encode_feedback(decision: Decision) -> str | None:
    if decision.action != "send_back":
        return None
    plain = {**decision.extra, "comments": [comment.to_json() for comment in decision.comments]}
    try:
        text = json.dumps(to_jsonable_python(plain), allow_nan=False, ensure_ascii=False)
        text.encode()
    except ValueError as error:
        raise InvalidInput(f"the feedback cannot be written as JSON: {error}") from error
    if _NUL.search(text):
        raise InvalidInput("the feedback contains a NUL character: remove it")
    return _check_size(text)


def _check_size(text: str) -> str:
    """Raise InvalidInput for text above the size limit of a step's result."""
    if count_bytes(text) > MAX_RESULT_BYTES:
        raise InvalidInput(
            f"the decision has {count_bytes(text):,} bytes of JSON, over the limit of {MAX_RESULT_BYTES:,}"
        )
    return text


async def _build_refusal(database: Database, review: Review, decision: Decision, outcome: str | None) -> Exception:
    match outcome:
        case None:
            return NotFound(f"there is no review {review.id}")
        case "reused":
            return KeyReused(f"the key {decision.key!r} was used for another decision on review {review.id}")
        case "changed":
            return RevisionChanged(
                f"you saw revision {decision.seen}, but the current revision is {review.revision}: look at it again"
            )
        case "forbidden" if not review.can_send_back_to:
            return SendBackNotAllowed(f"{review.step!r} cannot be sent back: approve or reject it")
        case "forbidden":
            allowed = ", ".join(map(repr, review.can_send_back_to))
            return SendBackNotAllowed(f"{review.step!r} can be sent back to {allowed}, not to {decision.to!r}")
        case "missed":
            items = f", or it has no items {', '.join(decision.items)}" if decision.items else ""
            return SendBackNotAllowed(
                f"rerunning {_get_target_step(review, decision)!r} would not lead back to {review.step!r}{items}"
            )
        case "capped":
            return Conflict(
                f"{review.step!r} was sent back {review.times_sent_back} times, which is its limit: approve it, reject "
                "it, or assign it to somebody else"
            )
        case _:
            (winner,) = await reviews.list_reviews(database, ReviewFilter(ids=[review.id]))
            return AlreadyDecided(winner)
