"""Send a result back from a review: the step reruns with the feedback, and the review opens again."""

import asyncio

from retoma import App, Context, Pipeline, testing
from retoma.reviews import Decision

article = Pipeline("article")


@article.step
def draft(*, ctx: Context) -> str:
    if ctx.feedback is None:
        return "Tea is a leaf that people put into hot water."
    return f"{str(ctx.previous_result).partition(' that')[0]}. ({ctx.feedback.notes})"


article.review("good_draft", of=draft, max_revisions=3)
app = App("send_back", pipelines=[article])


async def main() -> None:
    async with testing.sandbox(app) as sandbox:
        run = await sandbox.run(article)
        (review,) = await sandbox.client.reviews.list()
        await sandbox.client.reviews.decide(review.id, Decision("send_back", by="ana", notes="shorter"))
        await sandbox.work()
        (again,) = await sandbox.client.reviews.list()
        print("revision", again.revision, (await sandbox.client.runs.get_results(run.id))["draft"])
        await sandbox.client.reviews.decide(again.id, Decision("approve", by="ana"))
        await sandbox.work()
        print((await sandbox.client.runs.get(run.id)).state)


if __name__ == "__main__":
    asyncio.run(main())

# prints: revision 2 Tea is a leaf. (shorter)
# prints: completed
