"""Reviews: steps that a person does, and the feedback that they send back."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import timedelta
from typing import Any, Literal

from pydantic import BaseModel

OnExpiry = Literal["approved", "rejected"]
DEFAULT_MAX_REVISIONS = 10


@dataclass(frozen=True)
class ReviewPolicy:
    """The settings of a review. `subject` is the step whose result is under review, None if there are several.

    `back_to` are the steps that work may be sent back to, by default to the first, at most `max_revisions` times.
    Without any, it can only be approved or rejected.
    `rejection_ends_run` is for the review of an each step: without it, a rejection fails only its item.
    """

    subject: str | None
    form: Any
    has_form: bool
    back_to: tuple[str, ...]
    max_revisions: int = DEFAULT_MAX_REVISIONS
    due: timedelta | None = None
    remind: timedelta | None = None
    escalate: timedelta | None = None
    escalate_to: str | None = None
    expires: timedelta | None = None
    on_expiry: OnExpiry = "rejected"
    rejection_ends_run: bool = False
    assignee: str | None = None
    feedback_form: type[BaseModel] | None = None

    def to_json(self) -> dict[str, Any]:
        """Return the policy as the database functions read it, with times in seconds."""
        times = {"due": self.due, "remind": self.remind, "escalate": self.escalate, "expires": self.expires}
        return {
            "to": list(self.back_to),
            "max_revisions": self.max_revisions,
            "form": self.has_form,
            "assignee": self.assignee,
            "escalate_to": self.escalate_to,
            "on_expiry": self.on_expiry,
            "rejection_ends_run": self.rejection_ends_run,
            **{name: time.total_seconds() for name, time in times.items() if time is not None},
        }


@dataclass(frozen=True)
class Comment:
    """A comment on a moment of a recording, or on a range of it, in seconds. `quote` is the passage it is about."""

    text: str
    at: float | None = None
    to: float | None = None
    quote: str = ""

    def __str__(self) -> str:
        moments = "-".join(_format_timecode(moment) for moment in (self.at, self.to) if moment is not None)
        quote = f"\N{LEFT DOUBLE QUOTATION MARK}{self.quote}\N{RIGHT DOUBLE QUOTATION MARK}" if self.quote else ""
        return " ".join(filter(None, [moments, quote, self.text]))

    def to_json(self) -> dict[str, Any]:
        plain = {"text": self.text, "at": self.at, "to": self.to}
        return {**plain, "quote": self.quote} if self.quote else plain


@dataclass(frozen=True)
class Feedback:
    """A reviewer's feedback on work that was sent back. `items` are its subject; `extra` holds the feedback form.

    `revision` is the revision that it asked for. Feedback applies until the job has a result, so if that revision
    failed, `ctx.revision` is higher. 0 in a feedback check: there is no such revision yet.
    """

    notes: str = ""
    by: str = ""
    review: str = ""
    items: tuple[str, ...] = ()
    comments: tuple[Comment, ...] = ()
    extra: Mapping[str, Any] = field(default_factory=dict)
    revision: int = 0

    @property
    def text(self) -> str:
        """Return the notes, followed by each comment with its timecode and quote on a separate line."""
        return "\n".join(filter(None, [self.notes, *map(str, self.comments)]))

    @property
    def written_text(self) -> str:
        """Return only what the reviewer wrote: the notes and comments without timecodes and quotes."""
        return "\n".join(filter(None, [self.notes, *(comment.text for comment in self.comments)]))

    @classmethod
    def from_json(cls, document: Mapping[str, Any], revision: int = 0) -> Feedback:
        comments = tuple(
            Comment(one["text"], one.get("at"), one.get("to"), one.get("quote") or "")
            for one in document.get("comments") or ()
        )
        extra = {name: value for name, value in document.items() if name not in cls.__dataclass_fields__}
        notes, by, review = (str(document.get(name) or "") for name in ("notes", "by", "review"))
        return cls(notes, by, review, tuple(document.get("items") or ()), comments, extra, revision)


def _format_timecode(seconds: float) -> str:
    return f"{seconds // 60:.0f}:{seconds % 60:04.1f}".removesuffix(".0")


class Approval:
    """The function of a review without a submitted value: it returns the subject, or the form with its defaults."""

    def __init__(self, policy: ReviewPolicy) -> None:
        self._policy = policy

    def __call__(self, **subjects: Any) -> Any:
        if self._policy.has_form:
            return self._policy.form()
        assert self._policy.subject is not None
        return subjects[self._policy.subject]
