"""Reviews and decisions, and their metrics."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime
from typing import Annotated, Any
from uuid import UUID

from pydantic import Field

from retoma.errors import RetomaError
from retoma.states import ReviewState
from retoma.translations import N_


@dataclass(frozen=True)
class Review:
    """A question to a person about a job, and their decision.

    A planned review is a step of its pipeline. Otherwise a step asked for help. A decision takes effect at
    `effective_at`.
    """

    id: UUID
    run: UUID
    run_title: str | None
    tenant: str
    pipeline: str
    step: str
    item: str
    revision: Annotated[int, Field(description="The revision under review. Pass it as `seen` in a decision.")]
    planned: Annotated[bool, Field(description="False if the step requested the review; `reason` says why.")]
    state: ReviewState
    reason: Any
    opened_at: datetime
    due_at: datetime | None
    expires_at: datetime | None
    assignee: str | None
    claimed_by: Annotated[str | None, Field(description="The person who is currently reviewing it.")]
    decided_by: str | None
    via: str | None
    decided_at: datetime | None
    effective_at: Annotated[datetime | None, Field(description="The decision can be undone until this time.")]
    applied_at: datetime | None
    value: Annotated[Any, Field(description="The edited result that was approved, or the submitted form.")]
    notes: str | None
    feedback: Annotated[Any, Field(description="The comments and other feedback with which the work was sent back.")]
    back_to: str | None
    back_items: tuple[str, ...]
    can_send_back_to: Annotated[
        tuple[str, ...],
        Field(description="The steps that the work can be sent back to. The first one is the default."),
    ]
    times_sent_back: Annotated[int, Field(description="How often this work was sent back in the run.")]
    max_revisions: Annotated[int | None, Field(description="How often this work can be sent back in the run.")]
    has_form: Annotated[
        bool, Field(description="True if `value` is a form to fill in, false if it is the edited subject.")
    ]
    rejection_ends_run: Annotated[
        bool, Field(description="True if a rejection ends the run, false if it rejects only this item.")
    ]

    @property
    def is_open(self) -> bool:
        return self.state is ReviewState.OPEN

    @property
    def rejection_effect(self) -> str:
        """Return what a rejection does, as a sentence to translate."""
        return N_("Ends the run.") if self.rejection_ends_run else N_("Rejects this item; the other items continue.")

    @property
    def can_be_undone(self) -> bool:
        return self.decided_by is not None and self.applied_at is None


@dataclass(frozen=True)
class Subject:
    """A result under review."""

    step: str
    revision: int
    value: Any


@dataclass(frozen=True)
class ReviewCount:
    pipeline: str
    step: str
    open: int
    overdue: int
    oldest_at: datetime


@dataclass(frozen=True)
class DecisionResult:
    """The outcome of one of many decisions: the current review, or the error that prevented the decision."""

    review: UUID
    current: Review | None = None
    error: RetomaError | None = None


@dataclass(frozen=True)
class ReviewMetrics:
    """`first_decided` counts the first decision of each review in a run; `mean_wait` is in seconds."""

    decided: int
    first_decided: int
    approved_at_once: int
    mean_wait: float | None
