"""Retry failed attempts with increasing delays. The sandbox's clock skips the delays."""

import asyncio

from retoma import App, Context, Pipeline, Retry, RetryLater, exponential, seconds, testing

flaky = Pipeline("flaky")


@flaky.step(retry=Retry(3, backoff=exponential(10), jitter=0, on=OSError))  # 10, 20, 40 s; only for OSError
def answer(*, ctx: Context) -> str:
    if ctx.attempt < 3:
        raise OSError("the provider is unreachable")
    return f"attempt {ctx.attempt}"


limited: list[str] = []


@flaky.step(after=answer, retry=Retry(0))
def polite() -> str:
    if not limited:
        limited.append("once")
        raise RetryLater(seconds(60), "rate limit")  # waits without using up an attempt
    return "done"


app = App("retry", pipelines=[flaky])


async def main() -> None:
    async with testing.sandbox(app) as sandbox:
        run = await sandbox.run(flaky)
        for event in await sandbox.client.runs.list_events(run.id):
            print(f"{event.at:%H:%M:%S}", event.kind, event.step or "", (event.data or {}).get("message", ""))


if __name__ == "__main__":
    asyncio.run(main())

# prints: 12:00:00 start
# prints: 12:00:00 retry answer the provider is unreachable
# prints: 12:00:10 retry answer the provider is unreachable
# prints: 12:00:30 result answer
# prints: 12:00:30 retry polite rate limit
# prints: 12:01:30 result polite
# prints: 12:01:30 end
