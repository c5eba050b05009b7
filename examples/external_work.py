"""Run external work at a provider: submit it once, wait without holding a worker, and get its result at the end."""

import asyncio

from retoma import App, Context, Pipeline, PollResult, Pool, minutes, seconds, testing


class Renderer:
    def __init__(self) -> None:
        self.polls = 0

    async def submit(self, scene: str) -> str:
        print("submitted", scene)
        return f"job-1 of {scene}"

    async def find(self, scene: str) -> str | None:
        """Called only if the answer to a submission was lost."""
        return f"job-1 of {scene}"

    async def status(self, external_id: str) -> PollResult:
        self.polls += 1
        print("polled", external_id)
        return PollResult("running", progress=0.5) if self.polls < 3 else PollResult("succeeded", result="dawn.mp4")

    async def cancel(self, external_id: str) -> None:
        """Called only if the run is stopped while the work is in progress."""


film = Pipeline("film")


@film.step(pool=Pool("gpu", capacity=1), timeout=minutes(60))
async def clip(*, renderer: Renderer, ctx: Context) -> str:
    # The submission is recorded, so it is not repeated. Then the job parks; it keeps its slot.
    video: str = await ctx.external(
        lambda: renderer.submit("dawn"),
        find=renderer.find,
        poll=renderer.status,
        cancel=renderer.cancel,
        poll_interval=seconds(8),
        key="dawn",
    )
    return video


app = App("external_work", pipelines=[film], resources={"renderer": Renderer()})


async def main() -> None:
    async with testing.sandbox(app) as sandbox:
        run = await sandbox.run(film)
        print(run.results)
        print([(one.state, one.polls) for one in await sandbox.client.external_work.list(run.id)])


if __name__ == "__main__":
    asyncio.run(main())

# prints: submitted dawn
# prints: polled job-1 of dawn
# prints: polled job-1 of dawn
# prints: polled job-1 of dawn
# prints: {'clip': 'dawn.mp4'}
# prints: [('succeeded', 3)]
