"""Pipelines in which people review one item at a time: a rejection fails only the item, or ends the run."""

from __future__ import annotations

from uuid import UUID

from retoma import App, Items, Pipeline
from retoma.records import Review
from retoma.reviews import Decision
from retoma.testing import Sandbox


def make_pipeline(name: str, *, rejection_ends_run: bool) -> Pipeline:
    pipeline = Pipeline(name)

    @pipeline.step
    def words() -> list[str]:
        return ["cup", "leaf"]

    @pipeline.each(words)
    def picture(word: str) -> str:
        return f"picture of a {word}"

    pipeline.review("good_picture", of=picture, rejection_ends_run=rejection_ends_run)

    @pipeline.step
    def page(good_picture: Items[str]) -> str:
        return ", ".join(good_picture)

    return pipeline


app = App(
    "pictures",
    pipelines=[make_pipeline("album", rejection_ends_run=False), make_pipeline("passport", rejection_ends_run=True)],
)


async def start_until_reviews(sandbox: Sandbox, pipeline: str = "album") -> tuple[Review, Review]:
    """The reviews of a new run, of the cup and of the leaf."""
    run = (await sandbox.client.start(pipeline)).id
    await sandbox.work(advance_clock=False)
    cup, leaf = sorted(await sandbox.client.reviews.list(run=run), key=lambda review: review.item)
    return cup, leaf


async def approve_and_end(sandbox: Sandbox, review: Review) -> UUID:
    """Approve the last open review of a run, and let the run end."""
    await sandbox.client.reviews.decide(review.id, Decision("approve", by="ana"))
    await sandbox.work(advance_clock=False)
    return review.run
