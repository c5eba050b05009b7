"""Start runs by a schedule: every night at three in São Paulo, and the latest missed one after an outage."""

import asyncio
from datetime import timedelta

from pydantic import BaseModel

from retoma import App, Pipeline, testing
from retoma.schedules import Schedule


class Day(BaseModel):
    day: str


report = Pipeline("report", Day)


@report.step
def text(day: str) -> str:
    return f"report of {day}"


nightly = Schedule("nightly", report, cron="0 3 * * *", time_zone="America/Sao_Paulo", inputs={"day": "{{ due_date }}"})
app = App("schedules", pipelines=[report], schedules=[nightly])


async def main() -> None:
    async with testing.sandbox(app) as sandbox:
        (saved,) = await sandbox.client.schedules.declare()  # servers and workers do this when they start
        print("due:", f"{saved.next_at:%d %B %H:%M} UTC")
        for days in (1, 3):
            await sandbox.clock.advance(timedelta(days=days))
            await sandbox.client.schedules.start_due()  # and this every second
            await sandbox.work()
        for each in reversed(await sandbox.client.schedules.list_occurrences(saved.id)):
            result = (await sandbox.client.runs.get_results(each.run))["text"] if each.run else each.reason
            print(f"{each.due_at:%d %B}:", result, f"({each.count})")


if __name__ == "__main__":
    asyncio.run(main())

# prints: due: 02 January 06:00 UTC
# prints: 02 January: report of 2030-01-02 (1)
# prints: 03 January: missed (2)
# prints: 05 January: report of 2030-01-05 (1)
