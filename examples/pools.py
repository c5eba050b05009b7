"""Share a pool's slots between the steps of all runs. You can change its capacity while it is in use."""

import asyncio

from retoma import App, Items, Pipeline, Pool, testing

gpu = Pool("gpu", capacity=2)
film = Pipeline("film")
running: set[str] = set()
most: list[int] = []


@film.step
def scenes() -> list[str]:
    return ["dawn", "noon", "dusk", "night"]


@film.each(scenes, pool=gpu)
async def clip(scene: str) -> str:
    running.add(scene)
    most.append(len(running))
    await asyncio.sleep(0)
    running.discard(scene)
    return f"{scene}.mp4"


@film.step(pool=gpu, slots=2)  # large: it needs the whole pool
def reel(clip: Items[str]) -> list[str]:
    return list(clip)


app = App("pools", pipelines=[film])


async def main() -> None:
    async with testing.sandbox(app) as sandbox:
        print((await sandbox.run(film)).results["reel"], "at most", max(most), "at a time")
        pool = await sandbox.client.pools.update("gpu", capacity=4)
        print(pool.free, "of", pool.capacity, "slots are free")


if __name__ == "__main__":
    asyncio.run(main())

# prints: ['dawn.mp4', 'noon.mp4', 'dusk.mp4', 'night.mp4'] at most 2 at a time
# prints: 4 of 4 slots are free
