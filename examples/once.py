"""Call a service once: `find` asks it about a call whose answer was lost, `cancel` undoes a call of a cancelled run."""

import asyncio

from retoma import App, Context, Pipeline, testing
from retoma.errors import SubmissionUnknown


class Channel:
    def __init__(self) -> None:
        self.videos: dict[str, str] = {}

    def publish(self, key: str) -> str:
        self.videos[key] = f"video-{len(self.videos) + 1}"
        print("published", self.videos[key])
        raise SubmissionUnknown("the answer was lost")

    def find(self, key: str) -> str | None:
        print("found", self.videos.get(key))
        return self.videos.get(key)

    def delete(self, video: str) -> None:
        print("deleted", video)


film = Pipeline("film")


@film.step
async def upload(*, channel: Channel, ctx: Context) -> str:
    key = ctx.effect_key  # the same for all attempts
    video: str = await ctx.once("upload", lambda: channel.publish(key), find=channel.find, cancel=channel.delete)
    return video


app = App("once", pipelines=[film], resources={"channel": Channel()})


async def main() -> None:
    async with testing.sandbox(app) as sandbox:
        print((await sandbox.run(film)).results)  # the second attempt finds the video of the first
        run = await sandbox.client.start(film)
        await sandbox.work(advance_clock=False)
        await sandbox.client.runs.cancel(run.id)  # before the second attempt
        await sandbox.work()


if __name__ == "__main__":
    asyncio.run(main())

# prints: published video-1
# prints: found video-1
# prints: {'upload': 'video-1'}
# prints: published video-2
# prints: found video-2
# prints: deleted video-2
