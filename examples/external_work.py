"""Run external work at a provider: submit it once, wait without holding a worker, and get its result at the end."""

import asyncio

from retoma import App, Context, Pipeline, PollResult, Pool, minutes, seconds, testing


class Renderer:
    def __init__(self) -> None:
        self.asked = 0

    async def submit(self, scene: str) -> str:
        print("submitted", scene)
        return f"job-1 of {scene}"

    async def status(self, handle: str) -> PollResult:
        self.asked += 1
        print("asked for", handle)
        return PollResult("running", progress=0.5) if self.asked < 3 else PollResult("succeeded", result="dawn.mp4")


film = Pipeline("film")


@film.step(pool=Pool("gpu", capacity=1), timeout=minutes(60))
async def clip(*, renderer: Renderer, ctx: Context) -> str:
    handle = await ctx.once("submit", lambda: renderer.submit("dawn"))  # recorded: never submitted twice
    video: str = await ctx.external(
        handle, poll=renderer.status, poll_interval=seconds(8)
    )  # parks the job with its slot held
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
# prints: asked for job-1 of dawn
# prints: asked for job-1 of dawn
# prints: asked for job-1 of dawn
# prints: {'clip': 'dawn.mp4'}
# prints: [('succeeded', 3)]
