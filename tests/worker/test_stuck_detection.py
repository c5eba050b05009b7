from __future__ import annotations

from retoma import Pipeline, minutes
from tests.conftest import OpenSandbox
from tests.worker.test_worker import run_worker, wait_until


async def test_a_worker_detects_stuck_runs_automatically(open_sandbox: OpenSandbox) -> None:
    """Also over those that it does not serve."""
    today, another = Pipeline("today"), Pipeline("another")

    @today.step
    async def answer() -> int:
        return 1

    @another.step(queue="elsewhere")
    async def far_away() -> int:
        return 1

    async with open_sandbox(another) as before:
        run = (await before.client.start(another)).id
    async with open_sandbox(today) as sandbox:
        await sandbox.clock.advance(minutes(5))
        async with run_worker(sandbox):

            async def is_stuck() -> bool:
                return (await sandbox.client.runs.get(run)).state == "stuck"

            await wait_until(is_stuck)
