"""Workers serve queues; within a queue, one priority level is worth ten minutes of waiting."""

import asyncio
from datetime import timedelta

from pydantic import BaseModel

from retoma import App, Pipeline, testing


class Order(BaseModel):
    name: str


studio = Pipeline("studio", inputs=Order)


@studio.step
def script(name: str) -> None:
    print("script of", name)


@studio.step(queue="image")
def poster(name: str) -> None:
    print("poster of", name)


app = App("priorities_and_queues", pipelines=[studio])


async def main() -> None:
    async with testing.sandbox(app) as sandbox, sandbox.manual_worker() as worker:
        for name, priority in (("first", 0), ("second", 0), ("urgent", 1)):
            await sandbox.client.start(studio, {"name": name}, priority=priority)
            await sandbox.clock.advance(timedelta(minutes=4))
        for queue in ("image", "default"):
            while claims := await worker.claim(1, queues=[queue]):
                await worker.record_outcomes(await worker.attempt(claims))


if __name__ == "__main__":
    asyncio.run(main())

# prints: poster of urgent
# prints: poster of first
# prints: poster of second
# prints: script of urgent
# prints: script of first
# prints: script of second
