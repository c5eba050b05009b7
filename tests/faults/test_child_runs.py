"""Child runs while the workers of parents and children are killed."""

from __future__ import annotations

import asyncio
import random

from tests.faults.testbed import FaultEnvironment, wait_until

CHILDREN = 50
KILLS = 8


async def test_every_child_ends_once_though_workers_are_killed_at_random(testbed: FaultEnvironment) -> None:
    dice = random.Random(20290)
    fleet = [testbed.worker(heartbeat_timeout=1.0) for _ in range(3)]
    await wait_until(lambda: all(worker.is_ready for worker in fleet), "all are ready")
    run = await testbed.start("anthology", "family", size=CHILDREN)
    kills = 0
    while kills < KILLS and not await testbed.is_over(run):
        await asyncio.sleep(dice.uniform(0.1, 0.4))
        victim = dice.randrange(len(fleet))
        await fleet[victim].end()
        fleet[victim] = testbed.worker(heartbeat_timeout=1.0)
        kills += 1
    await testbed.wait_for_end(run)
    children = await testbed.client.runs.list(parent=run, limit=CHILDREN + 1)
    assert kills >= 3, "it was over too soon"
    assert len(children) == CHILDREN
    assert all(child.is_over for child in children)
    await testbed.check()
