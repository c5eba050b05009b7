"""If a step with `isolation="process"` crashes, only its own child process dies."""

import asyncio
import ctypes

from retoma import App, Items, Pipeline, Retry, testing

scans = Pipeline("scans")


@scans.step
def files() -> list[str]:
    return ["good.pdf", "broken.pdf"]


@scans.each(files, isolation="process", retry=Retry(0))
def pages(file: str) -> int:
    if file == "broken.pdf":
        ctypes.string_at(0)  # crashes like a faulty library
    return 12


@scans.step
def report(pages: Items[int]) -> str:
    return f"{pages.by_key}, without {[(failed.key, failed.code) for failed in pages.failures]}"


app = App("isolation", pipelines=[scans])


async def main() -> None:
    async with testing.sandbox(app) as sandbox:
        run = await sandbox.run(scans)
        print(run.state, run.results["report"])


if __name__ == "__main__":
    asyncio.run(main())

# prints: completed_with_errors {'good.pdf': 12}, without [('broken.pdf', 'CRASHED')]
