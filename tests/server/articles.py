"""A pipeline with two reviews: whether an outline is good, and which title its draft gets."""

from __future__ import annotations

from typing import Any
from uuid import UUID

from pydantic import BaseModel, Field

from retoma import App, Context, NeedsReview, Pipeline, Retry
from retoma.errors import FeedbackNotSupported
from retoma.reviews import Feedback
from tests.server.api import Api, film
from tests.studio import STUDIO


class Topic(BaseModel):
    topic: str = "tea"
    tone: str = "calm"


class Choice(BaseModel):
    title: int
    tags: list[str] = []


article = Pipeline("article", inputs=Topic, retry=Retry(0))


@article.step
def facts(topic: str) -> list[str]:
    if topic == "unsure":
        raise NeedsReview("two sources disagree", value=["unsure"], code="DISAGREE")
    return [topic]


def no_music(feedback: Feedback) -> None:
    if "music" in feedback.text:
        raise FeedbackNotSupported("an outline has no music: ask for other words")


@article.step(feedback=no_music)
def outline(facts: list[str], tone: str, *, ctx: Context) -> str:
    feedback = f", {ctx.feedback.notes}" if ctx.feedback else ""
    tone = ctx.feedback.extra.get("tone", tone) if ctx.feedback else tone
    return f"{tone} outline of {facts[0]}{feedback}"


class FeedbackForm(BaseModel):
    tone: str | None = Field(None, max_length=20)
    words: dict[str, str] = {}


article.review("good_outline", of=outline, send_back_to=[outline, facts], feedback_form=FeedbackForm, max_revisions=2)


@article.step
def titles(good_outline: str) -> list[str]:
    return [f"{good_outline}!", f"{good_outline}?"]


article.review("choice", of=titles, form=Choice)


@article.step
def page(titles: list[str], choice: Choice) -> str:
    return titles[choice.title]


article.group("texts", [outline, titles])
app = App("articles", pipelines=[film, article], connections=[STUDIO])


async def start_until_review(api: Api, *, tenant: str | None = None, **values: Any) -> dict[str, Any]:
    """The open review of a run that has come to it."""
    body = {"pipeline": "article", "input": values} | ({"tenant": tenant} if tenant else {})
    run = (await api.post("/api/v1/runs", json=body)).json()["id"]
    await api.sandbox.work(advance_clock=False)
    return await open_review(api, run)


async def open_review(api: Api, run: str | UUID) -> dict[str, Any]:
    (review,) = (await api.get("/api/v1/reviews", params={"run": str(run)})).json()["reviews"]
    return dict(review)


async def decide(api: Api, review: dict[str, Any], action: str, **more: Any) -> Any:
    headers = more.pop("headers", {})
    path = f"/api/v1/reviews/{review['id']}/decision"
    return await api.post(path, json={"action": action, **more}, headers=headers)


async def run_to_completion(api: Api, **values: Any) -> str:
    """A run with both decisions taken."""
    review = await start_until_review(api, **values)
    await approve_all(api, review)
    return str(review["run"])


async def approve_all(api: Api, review: dict[str, Any]) -> None:
    """Approve this review and those that follow."""
    assert (await decide(api, review, "approve")).status_code == 200
    await api.sandbox.work(advance_clock=False)
    last = await open_review(api, review["run"])
    assert (await decide(api, last, "approve", value={"title": 0})).status_code == 200
    await api.sandbox.work(advance_clock=False)
