"""`client.reviews`: what waits for people, and what they decide."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from datetime import datetime, timedelta
from uuid import UUID

from retoma.client.core import Namespace
from retoma.client.validation import id_range
from retoma.engine import reviews as review_rules
from retoma.engine.reviews import Decision
from retoma.errors import Conflict, NotFound, RetomaError
from retoma.records import DecisionResult, Review, ReviewCount, ReviewMetrics, Subject
from retoma.states import ReviewState
from retoma.store import reviews

REVIEW_CLAIM = timedelta(minutes=10)


class Reviews(Namespace):
    async def get(self, review: UUID, *, tenant: str | None = None) -> Review:
        found = await reviews.list_reviews(self._database, ids=[review], tenant=await self._core.find_tenant_id(tenant))
        if not found:
            raise NotFound(f"there is no review {review}")
        return found[0]

    async def find(self, prefix: str, *, limit: int = 5) -> list[UUID]:
        """The newest reviews whose ids begin like this; dashes and case do not matter."""
        ids = id_range(prefix)
        return [] if ids is None else await reviews.find_by_id_range(self._database, *ids, limit)

    async def count_open(self, *, tenant: str | None = None) -> list[ReviewCount]:
        """How many reviews are open, by pipeline and step."""
        return await reviews.count_open(self._database, await self._core.find_tenant_id(tenant))

    async def get_metrics(self, pipeline: str, since: datetime) -> ReviewMetrics:
        """What the planned reviews of a pipeline have come to since then."""
        return await reviews.get_metrics(self._database, pipeline, since)

    async def get_subjects(self, review: Review) -> dict[str, Subject]:
        """The results that a person is asked about, by step."""
        return {subject.step: subject for subject in await reviews.list_subjects(self._database, review.id)}

    async def decide(self, review: UUID, decision: Decision, *, tenant: str | None = None) -> Review:
        """Decide a review; the first decision wins. Gives the review as it stands.

        Raises AlreadyDecided with the winner, KeyReused if its key came with another decision, Conflict if another
        revision was seen, CannotFollow if the step cannot follow the feedback, and InvalidInput if what was given does
        not fit; then the review stays open.
        """
        found = await self.get(review, tenant=tenant)
        pipeline = self._core.app.pipelines.get(found.pipeline) if self._core.app else None
        resources = self._core.app.resources if self._core.app else None
        whose = await self._core.find_tenant_id(tenant)
        await review_rules.decide(self._database, found, whose, decision, pipeline, resources)
        self._core.starter.notify_workers()
        return await self.get(review)

    async def decide_many(
        self, decisions: Mapping[UUID, Decision], *, tenant: str | None = None
    ) -> list[DecisionResult]:
        """Many single decisions, each with an outcome of its own."""
        return [await self._decide_one(review, decision, tenant) for review, decision in decisions.items()]

    async def undo(self, review: UUID, *, by: str, tenant: str | None = None) -> Review:
        """Take a decision back before it takes effect; an open review stays open. Raises Conflict if it is too late."""
        undone = await reviews.undo_decision(self._database, review, await self._core.find_tenant_id(tenant), by)
        if undone is None:
            raise NotFound(f"there is no review {review}")
        found = await self.get(review)
        if not undone and not found.is_open:
            raise Conflict(f"the decision on review {review} has taken effect: it cannot be undone")
        return found

    async def claim(
        self, review: UUID, *, by: str, duration: timedelta = REVIEW_CLAIM, tenant: str | None = None
    ) -> str | None:
        """Let others see that this person looks at it. Gives who does; it keeps nobody from deciding."""
        return await reviews.claim_review(self._database, review, await self._core.find_tenant_id(tenant), by, duration)

    async def assign(self, review: UUID, assignee: str | None, *, by: str, tenant: str | None = None) -> Review:
        if not await reviews.assign_review(
            self._database, review, await self._core.find_tenant_id(tenant), assignee, by
        ):
            raise Conflict(f"review {review} is not open")
        return await self.get(review)

    async def _decide_one(self, review: UUID, decision: Decision, tenant: str | None) -> DecisionResult:
        try:
            return DecisionResult(review, await self.decide(review, decision, tenant=tenant))
        except RetomaError as error:
            return DecisionResult(review, error=error)

    async def list(
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
            self._database,
            tenant=await self._core.find_tenant_id(tenant),
            run=run,
            pipeline=pipeline,
            step=step,
            assignee=assignee,
            states=states,
            after=after,
            limit=limit,
        )
