"""Reviews and decisions, and their metrics."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime
from typing import Annotated, Any
from uuid import UUID

from pydantic import Field

from retoma.errors import RetomaError
from retoma.records.budget import BUDGET_PASSED, PassedBudget
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
    def passed_budget(self) -> PassedBudget | None:
        """Return the budget that the job would pass, if that is why it waits."""
        if not isinstance(self.reason, dict) or self.reason.get("code") != BUDGET_PASSED:
            return None
        return PassedBudget.from_json(self.reason["budget"]) if "budget" in self.reason else None

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
class ReviewComment:
    """A comment with which `review` was sent back at this revision. `position` is its place among them, from 0.

    `at` and `to` are seconds of the recording that it is about, `quote` the passage, each if there is one.
    """

    review: UUID
    step: str
    revision: int
    position: int
    text: str
    at: float | None
    to: float | None
    quote: str
    written_by: str
    written_at: datetime
    resolved_by: str | None
    resolved_at: datetime | None


@dataclass(frozen=True)
class ReviewCount:
    pipeline: str
    step: str
    open: int
    overdue: int
    oldest_at: datetime


@dataclass(frozen=True)
class InboxEntry:
    """A review as the inbox lists it, without what is needed only to decide it. `title` is the run's, or what its
    input says."""

    id: UUID
    run: UUID
    title: str
    tenant: str
    pipeline: str
    step: str
    item: str
    revision: int
    planned: bool
    state: ReviewState
    opened_at: datetime
    due_at: datetime | None
    assignee: str | None
    claimed_by: str | None
    decided_by: str | None
    decided_at: datetime | None
    has_form: bool

    @property
    def is_open(self) -> bool:
        return self.state is ReviewState.OPEN

    @property
    def kind(self) -> tuple[str, str]:
        """The pipeline and the step: reviews of one kind are listed together."""
        return self.pipeline, self.step


@dataclass(frozen=True)
class UndoableDecision:
    """A decision that has not taken effect. Decisions with the same `key` were made together."""

    entry: InboxEntry
    effective_at: datetime
    key: str


@dataclass(frozen=True)
class InboxCount:
    """How many open reviews there are of one kind, tenant and assignee. `assigned_person` is the number of a person."""

    pipeline: str
    step: str
    tenant: str
    assignee: str | None
    assigned_person: int | None
    open: int
    overdue: int
    oldest_at: datetime

    @property
    def kind(self) -> tuple[str, str]:
        return self.pipeline, self.step


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
