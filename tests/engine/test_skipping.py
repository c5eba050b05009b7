"""Steps that `when=` skips, and the consequences for their dependents."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
from pydantic import BaseModel

from retoma import GiveUp, Items, Pipeline, Retry, all_finished
from retoma.define.items import ItemCounts
from tests.conftest import OpenSandbox
from tests.engine.builders import codes, kinds, run_claims, run_next, states


class Inputs(BaseModel):
    music: bool = False


async def test_a_step_that_is_not_wanted_is_skipped_and_its_function_not_called(open_sandbox: OpenSandbox) -> None:
    pipeline = Pipeline("wishes", inputs=Inputs)
    called = []

    @pipeline.step(when=lambda music: music)
    async def song(music: bool) -> str:
        called.append(music)
        return "la la"

    async with open_sandbox(pipeline) as sandbox:
        without = await sandbox.run(pipeline, {"music": False})
        assert await codes(sandbox, without.id) == {"song": "SKIPPED"}
        with_music = await sandbox.run(pipeline, {"music": True})
    assert (without.state, without.results) == ("completed", {})
    assert (with_music.state, with_music.results) == ("completed", {"song": "la la"})
    assert called == [True]


async def test_dependents_of_a_skipped_step_are_skipped_too(open_sandbox: OpenSandbox) -> None:
    pipeline = make_unwanted("song")

    @pipeline.step
    async def mix(song: str) -> str:
        return song

    @pipeline.step
    async def video(mix: str, script: str) -> str:
        return mix + script

    @pipeline.step
    async def subtitles(script: str) -> str:
        return script

    async with open_sandbox(pipeline) as sandbox:
        run = await sandbox.run(pipeline)
        assert await states(sandbox, run.id) == {
            "script": "succeeded",
            "song": "skipped",
            "mix": "skipped",
            "video": "skipped",
            "subtitles": "succeeded",
        }
        assert (await codes(sandbox, run.id))["video"] == "SKIPPED"
    assert run.state == "completed"


async def test_a_default_replaces_a_skipped_dependency(open_sandbox: OpenSandbox) -> None:
    pipeline = make_unwanted("song")

    @pipeline.step
    async def alone(song: str = "silence") -> str:
        return song

    @pipeline.step
    async def video(script: str, song: str = "silence") -> str:
        return f"{script} with {song}"

    async with open_sandbox(pipeline) as sandbox:
        run = await sandbox.run(pipeline)
    assert run.results == {"script": "script", "alone": "silence", "video": "script with silence"}


async def test_a_missing_dependency_skips_even_where_another_ran_without_it(open_sandbox: OpenSandbox) -> None:
    pipeline = make_unwanted("song")

    @pipeline.step
    async def mix(song: str = "silence") -> str:
        return song

    @pipeline.step
    async def video(mix: str, song: str) -> str:
        raise AssertionError("video ran without the song")

    async with open_sandbox(pipeline) as sandbox:
        run = await sandbox.run(pipeline)
        assert (await states(sandbox, run.id))["video"] == "skipped"
        assert (await codes(sandbox, run.id))["video"] == "SKIPPED"
    assert run.results["mix"] == "silence"
    assert run.state == "completed"


async def test_a_missing_dependency_skips_even_where_another_only_came_after_it(
    open_sandbox: OpenSandbox,
) -> None:
    pipeline = make_unwanted("song")

    @pipeline.step(after="song")
    async def pause() -> int:
        return 1

    @pipeline.step
    async def video(pause: int, song: str) -> str:
        raise AssertionError("video ran without the song")

    async with open_sandbox(pipeline) as sandbox:
        run = await sandbox.run(pipeline)
        assert (await states(sandbox, run.id))["video"] == "skipped"
    assert run.state == "completed"


async def test_a_missing_shared_dependency_skips_items_even_where_their_source_ran(
    open_sandbox: OpenSandbox,
) -> None:
    pipeline = make_unwanted("song")

    @pipeline.step
    async def scenes(song: str = "silence") -> list[str]:
        return ["a", "b"]

    @pipeline.each(scenes)
    async def clip(scene: str, song: str) -> str:
        raise AssertionError("a clip was made without the song")

    @pipeline.step
    async def video(clip: Items[str]) -> int:
        return len(clip.failures)

    async with open_sandbox(pipeline) as sandbox:
        run = await sandbox.run(pipeline)
        assert (await states(sandbox, run.id))["clip:a"] == "skipped"
        assert (await codes(sandbox, run.id))["clip:a"] == "SKIPPED"
    assert run.results["video"] == 2


async def test_after_ignores_that_a_step_was_skipped(open_sandbox: OpenSandbox) -> None:
    pipeline = make_unwanted("song")

    @pipeline.step(after="song")
    async def one() -> str:
        return "one"

    @pipeline.step(after=["song", "script"])
    async def two() -> str:
        return "two"

    async with open_sandbox(pipeline) as sandbox:
        run = await sandbox.run(pipeline)
    assert (run.results["one"], run.results["two"]) == ("one", "two")


async def test_skipping_an_unwanted_item_does_not_affect_the_others(open_sandbox: OpenSandbox) -> None:
    pipeline = numbers_and_squares(when=lambda number: number != 2)
    seen: list[Any] = []

    @pipeline.step
    async def total(square: Items[int]) -> int:
        seen.extend((failed.key, failed.state, failed.code) for failed in square.failures)
        return sum(square)

    async with open_sandbox(pipeline) as sandbox:
        run = await sandbox.run(pipeline)
    assert (run.state, run.results["total"]) == ("completed", 1 + 9)
    assert seen == [("2", "skipped", "SKIPPED")]


async def test_an_unwanted_item_is_skipped_along_its_whole_chain(open_sandbox: OpenSandbox) -> None:
    pipeline = numbers_and_squares(when=lambda number: number != 2)

    @pipeline.each("numbers")
    async def sign(square: int) -> str:
        return "-" * square

    @pipeline.each("numbers")
    async def frame(sign: str, number: int) -> str:
        return f"[{sign}]"

    async with open_sandbox(pipeline) as sandbox:
        run = await sandbox.run(pipeline)
        found = await states(sandbox, run.id)
        why = await codes(sandbox, run.id)
    assert [found[f"{step}:2"] for step in ("square", "sign", "frame")] == ["skipped"] * 3
    assert [why[f"{step}:2"] for step in ("square", "sign", "frame")] == ["SKIPPED"] * 3
    assert [found[f"frame:{item}"] for item in "13"] == ["succeeded"] * 2
    assert run.state == "completed"


async def test_an_item_runs_with_its_default_where_its_dependency_was_skipped(open_sandbox: OpenSandbox) -> None:
    pipeline = numbers_and_squares(when=lambda number: number != 2)

    @pipeline.each("numbers")
    async def sign(number: int, square: int = 0) -> str:
        return f"{number}:{square}"

    @pipeline.step
    async def line(sign: Items[str]) -> list[str]:
        return list(sign)

    async with open_sandbox(pipeline) as sandbox:
        run = await sandbox.run(pipeline)
    assert run.results["line"] == ["1:1", "2:0", "3:9"]


async def test_unwanted_items_are_not_failures_for_a_join(open_sandbox: OpenSandbox) -> None:
    pipeline = numbers_and_squares(when=lambda number: number != 2)
    counted: list[ItemCounts] = []

    @pipeline.each("numbers")
    async def sign(square: int) -> str:
        return "+"

    def none_failed(counts: ItemCounts) -> bool:
        counted.append(counts)
        return counts.failed == 0

    @pipeline.step(proceed_when=none_failed)
    async def line(sign: Items[str]) -> str:
        return "".join(sign)

    async with open_sandbox(pipeline) as sandbox:
        run = await sandbox.run(pipeline)
    assert (run.state, run.results["line"]) == ("completed", "++")
    assert counted == [ItemCounts(3, failed=0, skipped=1)]


async def test_items_skipped_because_of_a_failure_count_as_failed(open_sandbox: OpenSandbox) -> None:
    pipeline = Pipeline("fails", retry=Retry(0))

    @pipeline.step
    async def numbers() -> list[int]:
        return [1, 2]

    @pipeline.each(numbers)
    async def square(number: int) -> int:
        if number == 2:
            raise GiveUp("two is too much")
        return number

    @pipeline.each(numbers)
    async def sign(square: int) -> str:
        return "+"

    @pipeline.step(proceed_when=all_finished(allow_failed=0), on_failure="continue")
    async def line(sign: Items[str]) -> str:
        return "".join(sign)

    async with open_sandbox(pipeline) as sandbox:
        run = await sandbox.run(pipeline)
        found = await codes(sandbox, run.id)
    assert (found["sign:2"], found["line"]) == ("DEPENDENCY_FAILED", "TOO_MANY_FAILED")


@pytest.mark.parametrize("first", ["unwanted", "broken"])
async def test_a_failed_dependency_outweighs_a_skipped_one_whichever_ended_first(
    open_sandbox: OpenSandbox, first: str
) -> None:
    pipeline = Pipeline("both", retry=Retry(0))

    @pipeline.step(when=lambda: False)
    async def unwanted() -> int:
        return 1

    @pipeline.step(on_failure="continue")
    async def broken() -> int:
        raise GiveUp("broken")

    @pipeline.step
    async def both(unwanted: int, broken: int) -> int:
        return 1

    async with open_sandbox(pipeline) as sandbox, sandbox.manual_worker() as worker:
        run = (await sandbox.client.start(pipeline)).id
        claims = await worker.claim(10)
        await run_claims(worker, claims, first)
        await run_claims(worker, claims, "broken" if first == "unwanted" else "unwanted")
        assert (await codes(sandbox, run))["both"] == "DEPENDENCY_FAILED"


async def test_a_step_without_one_dependency_waits_for_the_others_before_skipping(open_sandbox: OpenSandbox) -> None:
    pipeline = make_unwanted("song")

    @pipeline.step
    async def video(song: str, script: str) -> str:
        return song + script

    async with open_sandbox(pipeline) as sandbox, sandbox.manual_worker() as worker:
        run = (await sandbox.client.start(pipeline)).id
        claims = await worker.claim(10)
        await run_claims(worker, claims, "song")
        assert (await states(sandbox, run))["video"] == "waiting"
        await run_claims(worker, claims, "script")
        assert (await states(sandbox, run))["video"] == "skipped"


async def test_when_receives_the_same_values_as_its_step(open_sandbox: OpenSandbox) -> None:
    pipeline = numbers_and_squares(when=lambda number: number != 2)
    seen: list[list[int]] = []

    def many(square: Items[int]) -> bool:
        seen.append(list(square))
        return len(square) > 5

    @pipeline.step(when=many)
    async def total(square: Items[int]) -> int:
        return sum(square)

    async with open_sandbox(pipeline) as sandbox:
        run = await sandbox.run(pipeline)
        assert (await states(sandbox, run.id))["total"] == "skipped"
    assert seen == [[1, 9]]


async def test_a_condition_that_raises_is_a_failed_attempt(open_sandbox: OpenSandbox) -> None:
    pipeline = Pipeline("raises", retry=Retry(0))

    @pipeline.step(when=lambda: 1 / 0 > 1)
    async def answer() -> int:
        return 1

    async with open_sandbox(pipeline) as sandbox:
        run = await sandbox.run(pipeline)
        errors = await sandbox.client.runs.get_errors(run.id)
    assert run.state == "failed"
    assert errors["answer", ""]["type"] == "ZeroDivisionError"


async def test_a_skip_is_recorded_as_a_result_and_its_consequences_are_not(open_sandbox: OpenSandbox) -> None:
    pipeline = make_unwanted("song")

    @pipeline.step
    async def mix(song: str) -> str:
        return song

    async with open_sandbox(pipeline) as sandbox, sandbox.manual_worker() as worker:
        run = (await sandbox.client.start(pipeline)).id
        claims = await worker.claim(10)
        await run_claims(worker, claims, "song")
        await run_claims(worker, claims, "script")
        assert await kinds(sandbox, run) == ["start", "result song", "result script", "end"]
        assert await run_next(worker) == []


def make_unwanted(step: str) -> Pipeline:
    """A pipeline of `script`, and of a step that is skipped."""
    pipeline = Pipeline("unwanted", retry=Retry(0))

    @pipeline.step
    async def script() -> str:
        return "script"

    async def unwanted() -> str:
        raise AssertionError("a skipped step was run")

    unwanted.__name__ = step
    pipeline.step(when=lambda: False)(unwanted)
    return pipeline


def numbers_and_squares(when: Callable[[int], bool]) -> Pipeline:
    pipeline = Pipeline("squares", retry=Retry(0))

    @pipeline.step
    async def numbers() -> list[int]:
        return [1, 2, 3]

    @pipeline.each(numbers, when=when)
    async def square(number: int) -> int:
        return number * number

    return pipeline
