"""Whatever fails, in whatever order: once it no longer does, reruns produce the result of a run without failures."""

from __future__ import annotations

import random
from typing import Any
from uuid import UUID

import pytest

from retoma import GiveUp, Items, Pipeline, Retry
from retoma.testing import Sandbox
from tests.conftest import OpenSandbox
from tests.engine.builders import rows

ONCE = Retry(0)


class FailurePlan:
    """Which calls fail now, and which had a result."""

    def __init__(self, seed: int) -> None:
        self.random = random.Random(seed)
        self.chance = 0.0
        self.done: list[str] = []

    def call(self, name: str, value: Any) -> Any:
        if self.random.random() < self.chance:
            raise GiveUp(f"{name} fails")
        self.done.append(name)
        return value


def pipelines(luck: FailurePlan) -> list[Pipeline]:
    return [chain(luck), diamond(luck), fan(luck), pairs(luck)]


def chain(luck: FailurePlan) -> Pipeline:
    pipeline = Pipeline("chain", retry=ONCE)

    @pipeline.step
    def first() -> int:
        return int(luck.call("first", 1))

    @pipeline.step
    def second(first: int) -> int:
        return int(luck.call("second", first + 1))

    @pipeline.step
    def third(second: int) -> int:
        return int(luck.call("third", second + 1))

    return pipeline


def diamond(luck: FailurePlan) -> Pipeline:
    pipeline = Pipeline("diamond", retry=ONCE)

    @pipeline.step
    def top() -> int:
        return int(luck.call("top", 1))

    @pipeline.step(on_failure="continue")
    def left(top: int) -> int:
        return int(luck.call("left", top + 1))

    @pipeline.step(on_failure="continue")
    def right(top: int) -> int:
        return int(luck.call("right", top + 10))

    @pipeline.step(on_failure="continue")
    def bottom(left: int, right: int = 0) -> int:
        return int(luck.call("bottom", left + right))

    @pipeline.step(after=[bottom])
    def epilogue(top: int) -> int:
        return int(luck.call("epilogue", top))

    return pipeline


def fan(luck: FailurePlan) -> Pipeline:
    pipeline = Pipeline("fan", retry=ONCE)

    @pipeline.step(on_failure="continue")
    def names() -> list[str]:
        return list(luck.call("names", ["a", "b", "c"]))

    @pipeline.step(on_failure="continue")
    def tone() -> str:
        return str(luck.call("tone", "!"))

    @pipeline.step(on_failure="continue")
    def taste(tone: str) -> str:
        return str(luck.call("taste", tone * 2))

    @pipeline.each(names)
    def text(name: str) -> str:
        return str(luck.call(f"text {name}", name))

    @pipeline.each(names)
    def label(text: str, taste: str) -> str:
        return str(luck.call(f"label {text}", text + taste))

    @pipeline.each(names)
    def beside(name: str, tone: str = "?") -> str:
        return str(luck.call(f"beside {name}", name + tone))

    @pipeline.step(on_failure="continue")
    def joined(label: Items[str], beside: Items[str]) -> list[str]:
        return list(luck.call("joined", [*label, *beside]))

    return pipeline


def pairs(luck: FailurePlan) -> Pipeline:
    pipeline = Pipeline("pairs", retry=ONCE)

    @pipeline.step
    def scenes() -> list[str]:
        return list(luck.call("scenes", ["x", "y"]))

    @pipeline.step(on_failure="continue")
    def languages() -> list[str]:
        return list(luck.call("languages", ["pt", "en"]))

    @pipeline.each(scenes, languages, on_failure="stop")
    def line(scene: str, language: str) -> str:
        return str(luck.call(f"line {scene} {language}", f"{scene} {language}"))

    @pipeline.each(scenes)
    def picture(scene: str) -> str:
        return str(luck.call(f"picture {scene}", scene))

    @pipeline.step(on_failure="continue")
    def film(picture: Items[str], line: Items[str]) -> list[str]:
        return list(luck.call("film", [*picture, *line]))

    return pipeline


async def work(sandbox: Sandbox, luck: FailurePlan) -> None:
    """Work to the end, with claims of random sizes whose outcomes are reported in random order."""
    async with sandbox.manual_worker() as worker:
        held: list[Any] = []
        while True:
            held += await worker.attempt(await worker.claim(luck.random.randint(1, 4)))
            if not held:
                return
            luck.random.shuffle(held)
            some = luck.random.randint(1, len(held))
            await worker.record_outcomes(held[:some])
            held = held[some:]


async def rerun_until_done(sandbox: Sandbox, run: UUID, luck: FailurePlan) -> None:
    for chance in (0.3, 0.2, 0.0):
        luck.chance = chance
        await sandbox.client.runs.rerun_failed(run)
        await work(sandbox, luck)


@pytest.mark.parametrize("seed", range(48))
async def test_reruns_converge_to_the_result_of_a_run_without_failures(seed: int, open_sandbox: OpenSandbox) -> None:
    luck = FailurePlan(seed)
    made = pipelines(luck)
    pipeline = made[seed % len(made)]
    async with open_sandbox(*made) as sandbox:
        expected = (await sandbox.run(pipeline)).results
        luck.chance = 0.4
        run = (await sandbox.client.start(pipeline)).id
        await work(sandbox, luck)
        await rerun_until_done(sandbox, run, luck)
        assert (await sandbox.client.runs.get(run)).state == "completed"
        assert await sandbox.client.runs.get_results(run) == expected
        assert await rows(sandbox, "select * from retoma.runs where open_sinks <> 0") == []
        assert await rows(sandbox, "select * from retoma.jobs where state in ('waiting', 'ready', 'running')") == []


@pytest.mark.parametrize("seed", range(12))
async def test_results_that_do_not_depend_on_a_failure_are_not_recomputed(seed: int, open_sandbox: OpenSandbox) -> None:
    luck = FailurePlan(seed)
    pipeline = fan(luck)
    async with open_sandbox(pipeline) as sandbox:
        luck.chance = 0.3
        run = (await sandbox.client.start(pipeline)).id
        await work(sandbox, luck)
        before = list(luck.done)
        await rerun_until_done(sandbox, run, luck)
        again = luck.done[len(before) :]
        sources = {"names", "tone"} | {f"text {name}" for name in "abc"}
        assert not (set(before) & sources & set(again))
