"""Run external work at a provider: submit it once, wait without holding a worker, and get its result at the end."""

import asyncio

from retoma import App, Context, Pipeline, PollResult, Pool, minutes, seconds, testing


class Renderer:
    def __init__(self) -> None:
        self.polls = 0

    async def submit(self, scene: str) -> str:
        print("submitted", scene)
        return f"job-1 of {scene}"

    async def status(self, external_id: str) -> PollResult:
        self.polls += 1
        print("polled", external_id)
        return PollResult("running", progress=0.5) if self.polls < 3 else PollResult("succeeded", result="dawn.mp4")


film = Pipeline("film")


@film.step(pool=Pool("gpu", capacity=1), timeout=minutes(60))
async def clip(*, renderer: Renderer, ctx: Context) -> str:
    external_id = await ctx.once("submit", lambda: renderer.submit("dawn"))  # recorded: never submitted twice
    # Parks the job, which keeps its slot.
    video: str = await ctx.external(external_id, poll=renderer.status, poll_interval=seconds(8))
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
