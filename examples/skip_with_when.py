"""Skip a step with `when=`: steps that need its result are skipped too, unless their parameter has a default."""

import asyncio

from pydantic import BaseModel

from retoma import App, Pipeline, testing


class Post(BaseModel):
    words: int


post = Pipeline("post", inputs=Post)


@post.step(when=lambda words: words > 300)
def summary(words: int) -> str:
    return f"{words} words"


@post.step
def newsletter(summary: str) -> str:
    return f"today: {summary}"


@post.step
def page(summary: str = "no summary") -> str:
    return f"page: {summary}"


app = App("skip_with_when", pipelines=[post])


async def main() -> None:
    async with testing.sandbox(app) as sandbox:
        for words in (900, 100):
            run = await sandbox.run(post, {"words": words})
            print(run.state, run.results)


if __name__ == "__main__":
    asyncio.run(main())

# prints: completed {'summary': '900 words', 'newsletter': 'today: 900 words', 'page': 'page: 900 words'}
# prints: completed {'page': 'page: no summary'}
