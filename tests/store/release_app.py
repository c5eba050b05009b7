"""The application whose open work is in the snapshots of releases. Add to it; what is there must keep working."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

from pydantic import BaseModel

from retoma import App, Context, Items, Pipeline, PollResult, Retry, Webhook, minutes, seconds
from retoma.reviews import Decision
from retoma.testing import Sandbox

RECEIVER = "http://127.0.0.1:9/hook"  # nothing listens on this port
SENT_BACK = Decision("send_back", by="ana", notes="shorter")


class Article(BaseModel):
    topic: str


def build_app() -> App:
    article = Pipeline("article", inputs=Article)

    @article.step
    async def outline(topic: str) -> str:
        return f"outline of {topic}"

    article.review("approved_outline", of=outline, send_back_to=[outline])

    @article.step
    async def parts(approved_outline: str) -> list[str]:
        return [f"{approved_outline}, part {number}" for number in (1, 2, 3)]

    @article.each(parts)
    async def section(part: str) -> str:
        return part.upper()

    @article.step
    async def text(section: Items[str]) -> str:
        return "; ".join(section)

    clip = Pipeline("clip")

    @clip.step
    async def render(*, ctx: Context) -> str:
        return str(await ctx.external(submit, poll=poll, poll_interval=seconds(5)))

    flaky = Pipeline("flaky", retry=Retry(1, delays=[minutes(5)], jitter=0))

    @flaky.step
    async def call(*, ctx: Context) -> str:
        if ctx.attempt == 1:
            raise ConnectionError("the provider is down")
        return "answer"

    hopeless = Pipeline("hopeless", retry=Retry(0))

    @hopeless.step
    async def fail() -> None:
        raise ValueError("never works")

    return App("releases", pipelines=[article, clip, flaky, hopeless])


async def submit() -> str:
    return "work-1"


async def poll(external_id: str) -> PollResult:
    return PollResult("succeeded", result=f"result of {external_id}")


@asynccontextmanager
async def open_work(work: Sandbox) -> AsyncIterator[None]:
    """Leave runs that a worker, a person, a provider or a receiver must continue, and runs that have ended."""
    client = work.client
    started = {
        topic: await client.start("article", {"topic": topic}, key=topic, webhook=Webhook(RECEIVER))
        for topic in ("ended", "sent back", "in review")
    }
    for name in ("flaky", "hopeless"):
        await client.start(name, key=name)
    await work.work(advance_clock=False)
    for topic, decision in {"ended": Decision("approve", by="ana"), "sent back": SENT_BACK}.items():
        (review,) = await client.reviews.list(run=started[topic].id)
        await client.reviews.decide(review.id, decision)
        await work.work(advance_clock=False)
    async with work.manual_worker() as worker:
        await client.start("clip", key="parked")
        await worker.record_outcomes(await worker.attempt(await worker.claim()))
        await client.start("article", {"topic": "claimed"}, key="claimed")
        await worker.claim()
        await client.start("article", {"topic": "new"}, key="new")
        yield
