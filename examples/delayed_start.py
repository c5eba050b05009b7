"""Start a run later: it is accepted now and stays `pending` until its start time."""

import asyncio
from datetime import timedelta

from retoma import App, Pipeline, testing

digest = Pipeline("digest")


@digest.step
def mail() -> str:
    return "sent"


app = App("delayed_start", pipelines=[digest])


async def main() -> None:
    async with testing.sandbox(app) as sandbox:
        now = await sandbox.clock.now()
        started = await sandbox.client.start(digest, run_at=now + timedelta(hours=18))
        attempts = await sandbox.work(advance_clock=False)
        print((await sandbox.client.runs.get(started.id)).state, "after", attempts, "attempts")
        await sandbox.work()  # the clock jumps to the next due job
        run = await sandbox.client.runs.get(started.id)
        print(run.state, f"at {run.ended_at:%d %B %H:%M}")


if __name__ == "__main__":
    asyncio.run(main())

# prints: pending after 0 attempts
# prints: completed at 02 January 06:00
