"""A review: a step that a person does."""

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
    """How a review is held. `subject` is the step whose result it is about, None if it is about several.

    `back_to` are the steps that work may go back to, the first if none is named; after `cap` times it may not.
    """

    subject: str | None
    form: Any
    has_form: bool
    back_to: tuple[str, ...]
    queue: str
    max_revisions: int = DEFAULT_MAX_REVISIONS
    due: timedelta | None = None
    remind: timedelta | None = None
    escalate: timedelta | None = None
    escalate_to: str | None = None
    expires: timedelta | None = None
    on_expiry: OnExpiry = "rejected"
    assignee: str | None = None
    feedback_form: type[BaseModel] | None = None

    def to_json(self) -> dict[str, Any]:
        """As the database's functions read it, in seconds."""
        times = {"due": self.due, "remind": self.remind, "escalate": self.escalate, "expires": self.expires}
        return {
            "queue": self.queue,
            "to": list(self.back_to),
            "max_revisions": self.max_revisions,
            "form": self.has_form,
            "assignee": self.assignee,
            "escalate_to": self.escalate_to,
            "on_expiry": self.on_expiry,
            **{name: time.total_seconds() for name, time in times.items() if time is not None},
        }


@dataclass(frozen=True)
class Comment:
    """A remark about one moment of a recording, or about a range of it, in seconds."""

    text: str
    at: float | None = None
    to: float | None = None

    def __str__(self) -> str:
        moments = "-".join(_format_timecode(moment) for moment in (self.at, self.to) if moment is not None)
        return f"{moments} {self.text}" if moments else self.text


@dataclass(frozen=True)
class Feedback:
    """What a person said who sent work back. `items` are what it is about; `extra` is what the feedback form asked."""

    notes: str = ""
    by: str = ""
    review: str = ""
    items: tuple[str, ...] = ()
    comments: tuple[Comment, ...] = ()
    extra: Mapping[str, Any] = field(default_factory=dict)

    @property
    def text(self) -> str:
        """The notes, and each comment on a line of its own with the moment that it is about."""
        return "\n".join(filter(None, [self.notes, *map(str, self.comments)]))

    @classmethod
    def from_json(cls, document: Mapping[str, Any]) -> Feedback:
        comments = tuple(Comment(one["text"], one.get("at"), one.get("to")) for one in document.get("comments") or ())
        extra = {name: value for name, value in document.items() if name not in cls.__dataclass_fields__}
        notes, by, review = (str(document.get(name) or "") for name in ("notes", "by", "review"))
        return cls(notes, by, review, tuple(document.get("items") or ()), comments, extra)


def _format_timecode(seconds: float) -> str:
    return f"{seconds // 60:.0f}:{seconds % 60:04.1f}".removesuffix(".0")


class Approval:
    """The function of a review to which no person gave a value: the subject as it is, or the form filled by itself."""

    def __init__(self, policy: ReviewPolicy) -> None:
        self._policy = policy

    def __call__(self, **subjects: Any) -> Any:
        if self._policy.has_form:
            return self._policy.form()
        assert self._policy.subject is not None
        return subjects[self._policy.subject]
