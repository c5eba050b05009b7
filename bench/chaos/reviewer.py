"""Decide open reviews, some of them by two reviewers at once, as derived from each run."""

from __future__ import annotations

import asyncio

from bench.chaos import chance
from retoma.client import Client
from retoma.engine.reviews import Decision
from retoma.errors import AlreadyDecided, Conflict, DatabaseUnavailable
from retoma.records import Review

SECONDS_BETWEEN_ROUNDS = 0.1


class Reviewer:
    """`decided` counts accepted decisions by action; the model knows the expected result of each run.

    `contradictions` are reviewers who lost against their own decision.
    """

    def __init__(self, client: Client) -> None:
        self.contradictions: list[str] = []
        self.decided: dict[str, int] = dict.fromkeys(chance.DECISIONS, 0)
        self.too_late = 0
        self._client = client

    async def run(self) -> None:
        """Until cancelled."""
        while True:
            try:
                for review in await self._client.reviews.list():
                    if review.planned:  # those end when the budget is raised
                        await self._decide(review)
            except DatabaseUnavailable:
                pass  # in the next round
            await asyncio.sleep(SECONDS_BETWEEN_ROUNDS)

    async def _decide(self, review: Review) -> None:
        action = chance.decision(review.run, review.revision)
        people = ["ana", "rui"][: 1 + (chance.chance("two decide", review.id) < 0.3)]
        answers = await asyncio.gather(
            *(self._client.reviews.decide(review.id, Decision(action, by=by, notes="so it is")) for by in people),
            return_exceptions=True,
        )
        for by, answer in zip(people, answers, strict=True):
            if isinstance(answer, AlreadyDecided) and answer.winner.decided_by == by:
                self.contradictions.append(f"{by} decided {review.id} in {review.run}: {answer}")
            elif isinstance(answer, AlreadyDecided | Conflict):
                self.too_late += 1
            elif isinstance(answer, BaseException):
                raise answer
            else:
                self.decided[action] += 1
