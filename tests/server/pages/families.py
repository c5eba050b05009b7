"""An application whose runs have child runs: a batch has one article written for each of its topics."""

from __future__ import annotations

from uuid import UUID

from pydantic import BaseModel

from retoma import App, Context, GiveUp, Items, NeedsReview, Pipeline, Retry
from retoma.testing import Sandbox


class Topic(BaseModel):
    topic: str


class Batch(BaseModel):
    name: str = "Spring issue"
    topics: list[str] = []


article = Pipeline("article", Topic, title="About {topic}", retry=Retry(0))


@article.step
async def text(topic: str, *, ctx: Context) -> str:
    """Topics that begin with "bad" fail, and those that begin with "unsure" wait for a person."""
    ctx.charge("writer", "words", micros=10_000)
    if topic.startswith("bad"):
        raise GiveUp("nothing to say", "NO_IDEA")
    if topic.startswith("unsure"):
        raise NeedsReview("two sources disagree", value=topic)
    return topic


batch = Pipeline("batch", Batch, title="{name}")


@batch.each("topics")
async def written(topic: str, *, ctx: Context) -> str:
    return str((await ctx.run_child(article, {"topic": topic}))["text"])


@batch.step
async def issue(written: Items[str]) -> int:
    return len(written)


app = App("families", pipelines=[batch, article])


async def start_family(sandbox: Sandbox, *topics: str) -> UUID:
    """Return a run that has done all it can without a person."""
    return (await sandbox.run(batch, {"topics": topics})).id
