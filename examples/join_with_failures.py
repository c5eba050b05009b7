"""A failed item fails alone: the join gets the other results and the failures, unless more failed than it allows."""

import asyncio

from pydantic import BaseModel

from retoma import App, GiveUp, Items, Pipeline, all_finished, testing


class Batch(BaseModel):
    numbers: list[int]


batch = Pipeline("batch", inputs=Batch)


@batch.each("numbers")
def half(number: int) -> int:
    if number % 2:
        raise GiveUp(f"{number} is odd", code="ODD")
    return number // 2


@batch.step(proceed_when=all_finished(allow_failed=0.5))
def report(half: Items[int]) -> str:
    return f"{list(half)}, without {[(failed.key, failed.code) for failed in half.failures]}"


app = App("join_with_failures", pipelines=[batch])


async def main() -> None:
    async with testing.sandbox(app) as sandbox:
        for numbers in ([2, 3, 4], [3, 4, 5]):
            run = await sandbox.run(batch, {"numbers": numbers})
            errors = await sandbox.client.runs.get_errors(run.id)
            print(run.state, run.results.get("report") or errors["report", ""]["message"])


if __name__ == "__main__":
    asyncio.run(main())

# prints: completed_with_errors [1, 2], without [('3', 'ODD')]
# prints: failed 2 of 3 items of 'half' failed, more than 'report' allows with proceed_when
