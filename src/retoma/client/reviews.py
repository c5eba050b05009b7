"""What waits for people, and what they decide."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from datetime import datetime, timedelta
from uuid import UUID

from retoma.client.base import Base
from retoma.client.validation import id_range
from retoma.engine import reviews as review_rules
from retoma.engine.reviews import Decision
from retoma.errors import Conflict, NotFound, RetomaError
from retoma.records import DecisionResult, Review, ReviewCount, ReviewMetrics, Subject
from retoma.states import ReviewState
from retoma.store import reviews

REVIEW_CLAIM = timedelta(minutes=10)


class Reviews(Base):
    async def reviews(
        self,
        *,
        tenant: str | None = None,
        run: UUID | None = None,
        pipeline: str | None = None,
        step: str | None = None,
        assignee: str | None = None,
        states: Sequence[ReviewState] | None = (ReviewState.OPEN,),
        after: Review | None = None,
        limit: int = 50,
    ) -> list[Review]:
        """What waits for people, the oldest first. For the next page give the last one as `after`."""
        return await reviews.list_reviews(
            self.database,
            tenant=await self._tenant_filter(tenant),
            run=run,
            pipeline=pipeline,
            step=step,
            assignee=assignee,
            states=states,
            after=after,
            limit=limit,
        )

    async def review(self, review: UUID, *, tenant: str | None = None) -> Review:
        found = await reviews.list_reviews(self.database, ids=[review], tenant=await self._tenant_filter(tenant))
        if not found:
            raise NotFound(f"there is no review {review}")
        return found[0]

    async def find_review(self, prefix: str, *, limit: int = 5) -> list[UUID]:
        """The newest reviews whose ids begin like this; dashes and case do not matter."""
        ids = id_range(prefix)
        return [] if ids is None else await reviews.find_by_id_range(self.database, *ids, limit)

    async def review_counts(self, *, tenant: str | None = None) -> list[ReviewCount]:
        """How many reviews are open, by pipeline and step."""
        return await reviews.count_open(self.database, await self._tenant_filter(tenant))

    async def review_figures(self, pipeline: str, since: datetime) -> ReviewMetrics:
        """What the planned reviews of a pipeline have come to since then."""
        return await reviews.get_metrics(self.database, pipeline, since)

    async def subjects(self, review: Review) -> dict[str, Subject]:
        """The results that a person is asked about, by step."""
        return {subject.step: subject for subject in await reviews.list_subjects(self.database, review.id)}

    async def decide(self, review: UUID, decision: Decision, *, tenant: str | None = None) -> Review:
        """Decide a review; the first decision wins. Gives the review as it stands.

        Raises AlreadyDecided with the winner, KeyReused if its key came with another decision, Conflict if another
        revision was seen, CannotFollow if the step cannot follow the feedback, and InvalidInput if what was given does
        not fit; then the review stays open.
        """
        found = await self.review(review, tenant=tenant)
        pipeline = self.app.pipelines.get(found.pipeline) if self.app else None
        resources = self.app.resources if self.app else None
        whose = await self._tenant_filter(tenant)
        await review_rules.decide(self.database, found, whose, decision, pipeline, resources)
        self._starter.notify_workers()
        return await self.review(review)

    async def decide_many(
        self, decisions: Mapping[UUID, Decision], *, tenant: str | None = None
    ) -> list[DecisionResult]:
        """Many single decisions, each with an outcome of its own."""
        return [await self._decide_one(review, decision, tenant) for review, decision in decisions.items()]

    async def undo(self, review: UUID, *, by: str, tenant: str | None = None) -> Review:
        """Take a decision back before it takes effect; an open review stays open. Raises Conflict if it is too late."""
        undone = await reviews.undo_decision(self.database, review, await self._tenant_filter(tenant), by)
        if undone is None:
            raise NotFound(f"there is no review {review}")
        found = await self.review(review)
        if not undone and not found.is_open:
            raise Conflict(f"the decision on review {review} has taken effect: it cannot be undone")
        return found

    async def claim_review(
        self, review: UUID, *, by: str, duration: timedelta = REVIEW_CLAIM, tenant: str | None = None
    ) -> str | None:
        """Let others see that this person looks at it. Gives who does; it keeps nobody from deciding."""
        return await reviews.claim_review(self.database, review, await self._tenant_filter(tenant), by, duration)

    async def assign_review(self, review: UUID, assignee: str | None, *, by: str, tenant: str | None = None) -> Review:
        if not await reviews.assign_review(self.database, review, await self._tenant_filter(tenant), assignee, by):
            raise Conflict(f"review {review} is not open")
        return await self.review(review)

    async def _decide_one(self, review: UUID, decision: Decision, tenant: str | None) -> DecisionResult:
        try:
            return DecisionResult(review, await self.decide(review, decision, tenant=tenant))
        except RetomaError as error:
            return DecisionResult(review, error=error)
