"""Cancel a run: nothing new starts, running jobs are notified, and a job that ends before that keeps its result."""

import asyncio

from retoma import App, Pipeline, testing

film = Pipeline("film")


@film.step
def script() -> str:
    return "a script"


@film.step
def footage(script: str) -> str:
    return f"footage of {script}"


app = App("cancel", pipelines=[film])


async def main() -> None:
    async with testing.sandbox(app) as sandbox, sandbox.manual_worker() as worker:
        started = await sandbox.client.start(film)
        claims = await worker.claim()  # the script is being written
        print(await sandbox.client.runs.cancel(started.id, by="ana"))
        await worker.record_outcomes(await worker.attempt(claims))
        print((await sandbox.client.runs.get(started.id)).state, await sandbox.client.runs.get_results(started.id))
        print(*(event.kind for event in await sandbox.client.runs.list_events(started.id)))


if __name__ == "__main__":
    asyncio.run(main())

# prints: cancelling
# prints: cancelled {'script': 'a script'}
# prints: start action result end
