"""Tenants take turns: a channel that started a hundred runs does not delay one that started a single run."""

import asyncio

from retoma import App, Pipeline, testing
from retoma.states import RunState

clip = Pipeline("clip")


@clip.step
def render() -> str:
    return "rendered"


app = App("tenants", pipelines=[clip])


async def main() -> None:
    async with testing.sandbox(app) as sandbox:
        await sandbox.client.start_many(clip, [None] * 100, tenant="busy channel")
        await sandbox.client.start(clip, tenant="small channel")
        async with sandbox.manual_worker() as worker:
            claims = await worker.claim(2)  # a worker with room for two jobs
            await worker.record_outcomes(await worker.attempt(claims))
        done = await sandbox.client.runs.list(states=[RunState.COMPLETED])
        print(*(f"{run.tenant}: {run.state}" for run in done), sep=", ")


if __name__ == "__main__":
    asyncio.run(main())

# prints: small channel: completed, busy channel: completed
