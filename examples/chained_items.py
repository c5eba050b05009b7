"""Chain steps over the same items, item by item: `memo` continues while `scan` waits for its second attempt."""

import asyncio

from retoma import App, Context, Pipeline, Retry, testing

documents = Pipeline("documents")


@documents.step
def files() -> list[str]:
    return ["memo", "scan"]


@documents.each(files, retry=Retry(1, delays=[60], jitter=0))
def text(file: str, *, ctx: Context) -> str:
    if file == "scan" and ctx.attempt == 1:
        raise OSError("the scanner is busy")
    return f"the text of {file}"


@documents.each(files)
def words(text: str) -> int:
    return len(text.split())


app = App("chained_items", pipelines=[documents])


async def main() -> None:
    async with testing.sandbox(app) as sandbox:
        run = await sandbox.run(documents)
        for event in await sandbox.client.runs.list_events(run.id):
            if event.item:
                print(f"{event.at:%H:%M}", event.kind, event.step, event.item)


if __name__ == "__main__":
    asyncio.run(main())

# prints: 12:00 retry text scan
# prints: 12:00 result text memo
# prints: 12:00 result words memo
# prints: 12:01 result text scan
# prints: 12:01 result words scan
