"""Let a person approve or edit a result: the run waits without holding a worker, and continues with their version."""

import asyncio

from retoma import App, Pipeline, testing
from retoma.reviews import Decision

article = Pipeline("article")


@article.step
def title() -> str:
    return "on tea"


article.review("good_title", of=title)


@article.step
def page(good_title: str) -> str:
    return f"<h1>{good_title}</h1>"


app = App("review", pipelines=[article])


async def main() -> None:
    async with testing.sandbox(app) as sandbox:
        run = await sandbox.run(article)
        print(run.state, run.results)
        (review,) = await sandbox.client.reviews.list()
        await sandbox.client.reviews.decide(review.id, Decision("approve", by="ana", value="On Tea"))
        await sandbox.work()
        print((await sandbox.client.runs.get_results(run.id))["page"])


if __name__ == "__main__":
    asyncio.run(main())

# prints: paused {'title': 'on tea'}
# prints: <h1>On Tea</h1>
