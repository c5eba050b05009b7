"""Record what each attempt costs, failed ones included, and list the totals by step."""

import asyncio

from retoma import App, Context, Pipeline, Retry, testing

labels = Pipeline("labels", retry=Retry(2, delays=[1]))


@labels.step
def label(*, ctx: Context) -> str:
    ctx.charge("openrouter", "small-model", tokens_in=1_000, tokens_out=100)  # as the provider reports it
    if ctx.attempt == 1:
        raise ValueError("not one of the labels")
    return "invoice"


@labels.step
def voice(label: str, *, ctx: Context) -> str:
    ctx.charge("azure", "antonio", units=len(label))
    return f"{label}.wav"


app = App("charges", pipelines=[labels])


async def main() -> None:
    async with testing.sandbox(app) as sandbox:
        await sandbox.client.costs.set_price("openrouter", "small-model", tokens_in=150_000, tokens_out=600_000)
        run = await sandbox.run(labels)
        for total in await sandbox.client.costs.get_totals(by=["step"], run=run.id):
            print(total.step, total.charges, "charges,", total.micros, "micros,", total.unpriced, "unpriced")


if __name__ == "__main__":
    asyncio.run(main())

# prints: label 2 charges, 420 micros, 0 unpriced
# prints: voice 1 charges, 0 micros, 1 unpriced
