"""Publish a story: the decision of a person, of which the first one counts."""

from __future__ import annotations

from retoma import Client
from retoma.errors import AlreadyDecided, Conflict
from retoma.records import Review, Run
from retoma.reviews import Decision
from retoma.states import ReviewState
from retoma_apps.stories.models import Approval
from retoma_apps.stories.operations.overview import get_overview, list_reviews
from retoma_apps.stories.states import Status


class NotReady(Conflict):
    """The story has nothing to publish yet, or ended before that."""

    def __init__(self, run: Run, status: Status) -> None:
        super().__init__(f"story {run.id} is {status}: it can be published once it is ready_for_review")
        self.status = status


async def publish_story(
    client: Client, run: Run, approval: Approval, *, by: str, via: str, seen: int | None = None, key: str | None = None
) -> Review:
    """Approve a story, which starts its upload. Return the decided review.

    Raise NotReady if the story is not ready for review, and AlreadyDecided if somebody has decided: nothing changes
    then. The same key is the same decision. `seen` is the revision that the person saw.
    """
    reviews = await list_reviews(client, run.id)
    if not reviews or reviews[-1].state is ReviewState.WITHDRAWN:
        raise await _build_refusal(client, run)
    decision = Decision("approve", by=by, value=approval.model_dump(exclude_none=True), seen=seen, key=key, via=via)
    try:
        return await client.reviews.decide(reviews[-1].id, decision)
    except AlreadyDecided as error:
        if (refusal := await _build_refusal(client, run)).status in (Status.READY_FOR_REVIEW, Status.PUBLISHED):
            raise
        raise refusal from error  # a scene is being rerun, so the decision was on an earlier film


async def _build_refusal(client: Client, run: Run) -> NotReady:
    overview = await get_overview(client, await client.runs.get(run.id))
    return NotReady(run, overview.status)
