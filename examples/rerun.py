"""Rerun one item of a finished run: only the steps whose inputs change run again, and the old results are kept."""

import asyncio

from retoma import App, Items, Pipeline, testing

film = Pipeline("film")
takes: list[str] = []


@film.step
def scenes() -> list[str]:
    return ["dawn", "dusk"]


@film.each(scenes)
def picture(scene: str) -> str:
    takes.append(scene)
    return f"{scene}, take {takes.count(scene)}"


@film.step
def reel(picture: Items[str]) -> list[str]:
    return list(picture)


app = App("rerun", pipelines=[film])


async def main() -> None:
    async with testing.sandbox(app) as sandbox:
        run = await sandbox.run(film)
        await sandbox.client.runs.rerun(run.id, "picture", items=["dusk"], by="ana", reason="too dark")
        await sandbox.work()
        for reel in await sandbox.client.runs.get_step_history(run.id, "reel"):
            print("revision", reel.revision, reel.output)


if __name__ == "__main__":
    asyncio.run(main())

# prints: revision 2 ['dawn, take 1', 'dusk, take 2']
# prints: revision 1 ['dawn, take 1', 'dusk, take 1']
