"""Let a step fall back to another provider: retry the first one, then move on to the next."""

import asyncio

from retoma import App, Context, Pipeline, ProviderChain, Retry, minutes, testing

article = Pipeline("article")


class Model:
    """A language model. A real one would be called over HTTP."""

    def __init__(self, name: str, *, works: bool) -> None:
        self.name, self.works = name, works

    async def write(self) -> str:
        if not self.works:
            raise OSError("503")
        return f"an article by {self.name}"


@article.step(retry=Retry(2, delays=[10, 30], jitter=0), total_timeout=minutes(30), cost_limit=2.50)
async def body(*, llm: Model, ctx: Context) -> str:
    ctx.charge(llm.name, "model", micros=400_000)
    return await llm.write()


chain = ProviderChain([Model("openrouter", works=False), Model("second-model", works=True)], switch_delay=120)
app = App("articles", pipelines=[article], resources={"llm": chain})


async def main() -> None:
    async with testing.sandbox(app) as sandbox:
        run = await sandbox.run(article)
        for event in await sandbox.client.runs.list_events(run.id, kinds=["retry"]):
            print(f"{event.at:%H:%M:%S}", event.data["provider"], "failed; next:", event.data.get("next_provider"))
        print(run.results["body"])


if __name__ == "__main__":
    asyncio.run(main())

# prints: 12:00:00 openrouter failed; next: None
# prints: 12:00:10 openrouter failed; next: None
# prints: 12:00:40 openrouter failed; next: second-model
# prints: an article by second-model
