"""`after=` only sets the order: the step runs after the other step has ended, whatever its outcome."""

import asyncio

from retoma import App, GiveUp, Pipeline, testing

media = Pipeline("media")


@media.step(on_failure="continue")
def upload() -> str:
    raise GiveUp("the channel is closed")


@media.step
def link(upload: str) -> str:
    return f"https://example.org/{upload}"


@media.step(after=upload)
def cleanup() -> str:
    return "scratch files removed"


app = App("after", pipelines=[media])


async def main() -> None:
    async with testing.sandbox(app) as sandbox:
        run = await sandbox.run(media)
        print(run.state, run.results)
        for job in await sandbox.client.runs.list_jobs(run.id):
            print(job.step, job.state, job.code)


if __name__ == "__main__":
    asyncio.run(main())

# prints: completed_with_errors {'cleanup': 'scratch files removed'}
# prints: cleanup succeeded None
# prints: link skipped DEPENDENCY_FAILED
# prints: upload failed GAVE_UP
