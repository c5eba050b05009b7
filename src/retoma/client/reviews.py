"""`client.reviews`: open reviews, and decisions on them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from datetime import datetime, timedelta
from uuid import UUID

from retoma.client.core import Namespace, as_list
from retoma.engine import reviews as review_rules
from retoma.engine.reviews import Decision
from retoma.errors import Conflict, NotFound, RetomaError
from retoma.records import DecisionResult, Review, ReviewCount, ReviewMetrics, Subject
from retoma.states import ReviewState
from retoma.store import reviews
from retoma.store.id_prefixes import find_by_prefix
from retoma.store.reviews import ReviewFilter

REVIEW_CLAIM = timedelta(minutes=10)


class Reviews(Namespace):
    async def get(self, review: UUID, *, tenant: str | None = None) -> Review:
        owner = await self._core.find_tenant_id(tenant)
        found = await reviews.list_reviews(self._database, ReviewFilter(tenant=owner, ids=[review]))
        if not found:
            raise NotFound(f"there is no review {review}")
        return found[0]

    async def find(self, prefix: str, *, limit: int = 5) -> list[UUID]:
        """Return the newest reviews whose ids start with `prefix`, ignoring dashes and case."""
        return await find_by_prefix(self._database, "reviews", prefix, limit)

    async def count_open(self, *, tenant: str | None = None) -> list[ReviewCount]:
        """Return the number of open reviews by pipeline and step."""
        return await reviews.count_open(self._database, await self._core.find_tenant_id(tenant))

    async def get_metrics(self, pipeline: str, since: datetime) -> ReviewMetrics:
        """Return metrics of the planned reviews of a pipeline since then."""
        return await reviews.get_metrics(self._database, pipeline, since)

    async def get_subjects(self, review: Review) -> dict[str, Subject]:
        """Return the results under review, by step."""
        return {subject.step: subject for subject in await reviews.list_subjects(self._database, review.id)}

    async def decide(self, review: UUID, decision: Decision, *, tenant: str | None = None) -> Review:
        """Decide a review; the first decision wins. Return the updated review.

        Raise AlreadyDecided with the winner, KeyReused if the key came with another decision, Conflict if the reviewer
        saw another revision, FeedbackNotSupported if the step cannot act on the feedback, and InvalidInput if a value
        is not valid. In each case the review stays as it was.
        """
        found = await self.get(review, tenant=tenant)
        application = self._core.app.find_owner(found.pipeline) if self._core.app else None
        pipeline = application.own_pipelines[found.pipeline] if application else None
        resources = application.resources if application else None
        owner = await self._core.find_tenant_id(tenant)
        await review_rules.decide(self._database, found, owner, decision, pipeline, resources)
        self._core.starter.notify_workers()
        return await self.get(review)

    async def decide_many(
        self, decisions: Mapping[UUID, Decision], *, tenant: str | None = None
    ) -> list[DecisionResult]:
        """Apply several decisions independently, and return the result of each."""
        return [await self._decide_one(review, decision, tenant) for review, decision in decisions.items()]

    async def undo(self, review: UUID, *, by: str, tenant: str | None = None) -> Review:
        """Undo a decision before it takes effect; an open review stays open. Raise Conflict if it is too late."""
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
        """Show others that this person is reviewing it. Return the current claimant. Anyone can still decide."""
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
        pipeline: str | Sequence[str] | None = None,
        step: str | None = None,
        assignee: str | None = None,
        states: Sequence[ReviewState] | None = (ReviewState.OPEN,),
        after: Review | None = None,
        limit: int = 50,
    ) -> list[Review]:
        """Return reviews, by default open ones, oldest first. For the next page pass the last one as `after`.

        `pipeline` is the name of one pipeline, or of several.
        """
        wanted = ReviewFilter(
            tenant=await self._core.find_tenant_id(tenant),
            run=run,
            pipelines=as_list(pipeline),
            step=step,
            assignee=assignee,
            states=states,
            after_at=after.opened_at if after else None,
            after_id=after.id if after else None,
            limit=limit,
        )
        return await reviews.list_reviews(self._database, wanted)
