"""`timeout` limits one attempt; `total_timeout` limits all attempts and the delays between them."""

import asyncio

from retoma import App, Pipeline, Retry, minutes, seconds, testing

slow = Pipeline("slow")


@slow.step(timeout=seconds(0.05), retry=Retry(0), on_failure="continue")
async def hanging() -> str:
    await asyncio.sleep(60)
    return "too late"


@slow.step(total_timeout=minutes(15), retry=Retry(100, delays=[minutes(10)], jitter=0), on_failure="continue")
def stubborn() -> str:
    raise OSError("no response")


app = App("timeouts", pipelines=[slow])


async def main() -> None:
    async with testing.sandbox(app) as sandbox:
        run = await sandbox.run(slow)
        for job in await sandbox.client.runs.list_jobs(run.id):
            print(f"{job.step}: {job.state} with {job.code} at attempt {job.attempt}")


if __name__ == "__main__":
    asyncio.run(main())

# prints: hanging: failed with TIMEOUT at attempt 1
# prints: stubborn: failed with TOTAL_TIMEOUT at attempt 2
