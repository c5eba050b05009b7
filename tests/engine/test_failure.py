"""Steps that fail permanently: what stops, what continues, and what is recorded."""

from __future__ import annotations

import asyncio
import math
import sys
from collections.abc import Awaitable, Callable
from datetime import datetime
from typing import Any

import pytest
from pydantic import BaseModel, TypeAdapter

from retoma import Context, GiveUp, Items, Pipeline, Retry, all_finished
from retoma.define.items import FailedItem
from tests.conftest import OpenSandbox
from tests.engine.builders import codes, names, run_claims, run_next, state, states

UNTITLED: dict[str, Any] = {"title": 7}
CIRCLE: list[Any] = []
CIRCLE.append(CIRCLE)


async def test_a_failed_step_fails_the_run(open_sandbox: OpenSandbox) -> None:
    pipeline = Pipeline("stops", retry=Retry(0))

    @pipeline.step
    async def broken() -> int:
        raise OSError("no route to host")

    @pipeline.step
    async def next_one(broken: int) -> int:
        return broken

    async with open_sandbox(pipeline) as sandbox:
        run = await sandbox.run(pipeline)
        assert await states(sandbox, run.id) == {"broken": "failed"}
        error = (await sandbox.client.runs.get_errors(run.id))["broken", ""]
    assert (run.state, run.results) == ("failed", {})
    assert (error["code"], error["type"], error["message"]) == ("ERROR", "OSError", "no route to host")
    assert "async def broken" not in error["stack"]
    assert 'raise OSError("no route to host")' in error["stack"]


async def test_after_a_stop_nothing_new_starts_and_running_jobs_keep_their_results(open_sandbox: OpenSandbox) -> None:
    pipeline = make_broken_and_a_slow_step()
    async with open_sandbox(pipeline) as sandbox, sandbox.manual_worker() as worker:
        run = (await sandbox.client.start(pipeline)).id
        claims = await worker.claim(2)
        assert names(claims) == ["broken", "slow"]
        await run_claims(worker, claims, "broken")
        assert await states(sandbox, run) == {
            "broken": "failed",
            "slow": "running",
            "idle": "cancelled",
            "both": "cancelled",
        }
        assert (await codes(sandbox, run))["idle"] == "RUN_STOPPED"
        assert await state(sandbox, run) == "running"
        assert await worker.claim(10) == []

        await run_claims(worker, claims, "slow")
        assert await state(sandbox, run) == "failed"
        assert await sandbox.client.runs.get_results(run) == {"slow": 1}
        assert await worker.claim(10) == []
        assert "after_slow" not in await states(sandbox, run)


async def test_a_step_that_fails_in_a_stopping_run_is_not_retried(open_sandbox: OpenSandbox) -> None:
    pipeline = Pipeline("two")

    @pipeline.step(retry=Retry(0))
    async def broken() -> int:
        raise OSError("broken")

    @pipeline.step(retry=Retry(5))
    async def flaky() -> int:
        raise OSError("flaky")

    async with open_sandbox(pipeline) as sandbox, sandbox.manual_worker() as worker:
        run = (await sandbox.client.start(pipeline)).id
        claims = await worker.claim(2)
        await run_claims(worker, claims, "broken")
        await run_claims(worker, claims, "flaky")
        assert await states(sandbox, run) == {"broken": "failed", "flaky": "cancelled"}
        assert await state(sandbox, run) == "failed"


async def test_a_result_in_the_same_call_as_a_stopping_failure_is_kept_and_starts_nothing(
    open_sandbox: OpenSandbox,
) -> None:
    pipeline = make_broken_and_a_slow_step()
    async with open_sandbox(pipeline) as sandbox, sandbox.manual_worker() as worker:
        run = (await sandbox.client.start(pipeline)).id
        await run_claims(worker, await worker.claim(2))
        assert await state(sandbox, run) == "failed"
        assert await sandbox.client.runs.get_results(run) == {"slow": 1}
        assert set((await states(sandbox, run)).values()) == {"failed", "succeeded", "cancelled"}
        assert await worker.claim(10) == []


async def test_a_continuing_failure_starts_nothing_in_a_run_stopped_in_the_same_call(
    open_sandbox: OpenSandbox,
) -> None:
    pipeline = Pipeline("both", retry=Retry(0))

    @pipeline.step
    async def stops() -> int:
        raise OSError("stops")

    @pipeline.step(on_failure="continue")
    async def continues() -> int:
        raise OSError("continues")

    @pipeline.step
    async def without_it(continues: int = 0) -> int:
        return continues

    async with open_sandbox(pipeline) as sandbox, sandbox.manual_worker() as worker:
        run = (await sandbox.client.start(pipeline)).id
        await run_next(worker, "continues", "stops")
        assert await states(sandbox, run) == {"stops": "failed", "continues": "failed"}
        assert await state(sandbox, run) == "failed"
        assert await worker.claim(10) == []


async def test_with_continue_dependents_are_skipped_and_other_branches_continue(open_sandbox: OpenSandbox) -> None:
    pipeline = make_continuing_failure()

    @pipeline.step
    async def needs_it(broken: int) -> int:
        return broken

    @pipeline.step
    async def needs_that(needs_it: int, other: int) -> int:
        return needs_it

    @pipeline.step
    async def other_branch(other: int) -> int:
        return other

    async with open_sandbox(pipeline) as sandbox:
        run = await sandbox.run(pipeline)
        assert await states(sandbox, run.id) == {
            "broken": "failed",
            "other": "succeeded",
            "needs_it": "skipped",
            "needs_that": "skipped",
            "other_branch": "succeeded",
        }
        assert (await codes(sandbox, run.id))["needs_that"] == "DEPENDENCY_FAILED"
    assert run.state == "completed_with_errors"


async def test_with_continue_a_default_replaces_the_missing_result(open_sandbox: OpenSandbox) -> None:
    pipeline = make_continuing_failure()

    @pipeline.step
    async def alone(broken: int = 7) -> int:
        return broken

    @pipeline.step
    async def two(other: int, broken: int = 7) -> int:
        return other + broken

    @pipeline.step(after="broken")
    async def later() -> str:
        return "later"

    async with open_sandbox(pipeline) as sandbox:
        run = await sandbox.run(pipeline)
    assert run.results == {"other": 1, "alone": 7, "two": 8, "later": "later"}
    assert run.state == "completed_with_errors"


async def test_an_item_fails_alone(open_sandbox: OpenSandbox) -> None:
    pipeline = make_failing_items(2)
    seen: list[FailedItem] = []

    @pipeline.step
    async def total(square: Items[int]) -> int:
        seen.extend(square.failures)
        return sum(square)

    async with open_sandbox(pipeline) as sandbox:
        run = await sandbox.run(pipeline)
    assert (run.state, run.results["total"]) == ("completed_with_errors", 1 + 9 + 16)
    assert seen == [FailedItem("2", "UNLUCKY", "failed")]


async def test_a_run_of_failing_items_without_a_join_completes_with_errors(open_sandbox: OpenSandbox) -> None:
    pipeline = make_failing_items(1, 2, 3, 4)
    async with open_sandbox(pipeline) as sandbox:
        run = await sandbox.run(pipeline)
    assert run.state == "completed_with_errors"


async def test_a_failing_item_may_stop_the_run(open_sandbox: OpenSandbox) -> None:
    pipeline = make_failing_items(2, on_failure="stop")
    async with open_sandbox(pipeline) as sandbox, sandbox.manual_worker() as worker:
        run = (await sandbox.client.start(pipeline)).id
        await run_next(worker, "numbers")
        claims = await worker.claim(2)
        assert names(claims) == ["square:1", "square:2"]
        await run_claims(worker, claims, "square:2")
        assert (await states(sandbox, run))["square:3"] == "cancelled"
        await run_claims(worker, claims, "square:1")
        assert await state(sandbox, run) == "failed"


@pytest.mark.parametrize(
    ("fails", "allowed", "proceeds"),
    [
        ([], 0, True),
        ([2], 0, False),
        ([2], 1, True),
        ([2, 3], 1, False),
        ([2], 0.25, True),
        ([2, 3], 0.25, False),
        ([1, 2, 3, 4], 1.0, True),
    ],
)
async def test_a_join_proceeds_if_no_more_items_failed_than_allowed(
    open_sandbox: OpenSandbox, fails: list[int], allowed: float, proceeds: bool
) -> None:
    pipeline = make_failing_items(*fails)

    @pipeline.step(proceed_when=all_finished(allow_failed=allowed))
    async def total(square: Items[int]) -> int:
        return sum(square)

    async with open_sandbox(pipeline) as sandbox:
        run = await sandbox.run(pipeline)
        errors = await sandbox.client.runs.get_errors(run.id)
    assert ("total" in run.results) == proceeds
    if not proceeds:
        assert run.state == "failed"
        message = errors["total", ""]
        assert message["code"] == "TOO_MANY_FAILED"
        assert f"{len(fails)} of 4 items of 'square' failed" in message["message"]


async def test_a_join_that_may_not_proceed_follows_its_own_failure_policy(open_sandbox: OpenSandbox) -> None:
    pipeline = make_failing_items(1)

    @pipeline.step(proceed_when=all_finished(allow_failed=0), on_failure="continue")
    async def total(square: Items[int]) -> int:
        return sum(square)

    @pipeline.step
    async def report(total: int = -1) -> int:
        return total

    async with open_sandbox(pipeline) as sandbox:
        run = await sandbox.run(pipeline)
    assert (run.state, run.results) == (
        "completed_with_errors",
        {"numbers": [1, 2, 3, 4], "square": {"2": 4, "3": 9, "4": 16}, "report": -1},
    )


async def test_a_failure_with_the_code_of_a_skip_is_still_a_failure(open_sandbox: OpenSandbox) -> None:
    pipeline = Pipeline("code", retry=Retry(0))

    @pipeline.step
    async def numbers() -> list[int]:
        return [1]

    @pipeline.each(numbers)
    async def square(number: int) -> int:
        raise GiveUp("no", code="SKIPPED")

    @pipeline.each(numbers)
    async def cube(square: int) -> int:
        return square

    @pipeline.step(proceed_when=all_finished(allow_failed=0), on_failure="continue")
    async def squares(square: Items[int]) -> int:
        return len(square)

    @pipeline.step(proceed_when=all_finished(allow_failed=0), on_failure="continue")
    async def cubes(cube: Items[int]) -> int:
        return len(cube)

    async with open_sandbox(pipeline) as sandbox:
        run = await sandbox.run(pipeline)
        found = await codes(sandbox, run.id)
    assert (found["cube:1"], found["squares"], found["cubes"]) == (
        "DEPENDENCY_FAILED",
        "TOO_MANY_FAILED",
        "TOO_MANY_FAILED",
    )


async def test_give_up_is_not_retried_and_keeps_its_code(open_sandbox: OpenSandbox) -> None:
    async def answer() -> int:
        raise GiveUp("the account is closed", code="ACCOUNT_CLOSED")

    error = await failure_of(open_sandbox, answer, retry=Retry(5))
    assert (error["code"], error["message"]) == ("ACCOUNT_CLOSED", "the account is closed")


async def test_an_error_may_carry_its_own_code(open_sandbox: OpenSandbox) -> None:
    class QuotaError(Exception):
        code = "QUOTA"

    async def answer() -> int:
        raise QuotaError("no more tokens")

    assert (await failure_of(open_sandbox, answer))["code"] == "QUOTA"


class Page(BaseModel):
    title: str


@pytest.mark.parametrize(
    ("promised", "value", "sentence"),
    [
        (int, "42", "is not of the annotated type int: Expected `int`, got `str`"),
        (list[int], ["42"], "is not of the annotated type list[int]: Expected `int`, got `str` - at `$[0]`"),
        (Page, {"title": "secret"}, "is not of the annotated type Page: Expected `Page`, got `dict`"),
        (
            Page,
            Page.model_construct(**UNTITLED),
            "is not of the annotated type Page: Expected `str`, got `int` - at `title`",
        ),
    ],
)
async def test_a_result_of_the_wrong_type_is_a_failed_attempt_with_advice(
    open_sandbox: OpenSandbox, promised: Any, value: object, sentence: str
) -> None:
    async def answer() -> Any:
        return value

    answer.__annotations__["return"] = promised
    error = await failure_of(open_sandbox, answer)
    assert error["message"] == f"the result of 'answer' {sentence}: change the annotation or the returned value"


@pytest.mark.parametrize(
    ("promised", "value", "why"),
    [
        (Any, object(), "Encoding objects of type object is unsupported"),
        (Any, CIRCLE, "maximum recursion depth exceeded"),
        (dict[str, Any], {"a": object()}, "Encoding objects of type object is unsupported"),
        (str, "\ud800", "surrogates not allowed"),
        (float, math.nan, "JSON cannot represent nan"),
        (bytes, b"\xff", "invalid utf-8"),
    ],
)
async def test_a_result_that_is_not_json_is_a_failed_attempt_with_advice(
    open_sandbox: OpenSandbox, promised: Any, value: object, why: str
) -> None:
    async def answer() -> Any:
        return value

    answer.__annotations__["return"] = promised
    message = (await failure_of(open_sandbox, answer))["message"]
    assert message.startswith("the result of 'answer' cannot be written as JSON: ")
    assert why in message
    assert message.endswith(": return text, numbers, lists, dicts, a dataclass or a pydantic model")


async def test_a_validation_error_is_reported_without_its_values(open_sandbox: OpenSandbox) -> None:
    async def answer() -> int:
        return TypeAdapter(dict[str, int]).validate_python({"card": "x4111"})["card"]

    assert (await failure_of(open_sandbox, answer))["message"] == (
        "card: Input should be a valid integer, unable to parse string as an integer"
    )


@pytest.mark.parametrize("letter", ["x", "é"])
async def test_a_result_over_the_limit_is_a_failed_attempt_with_advice(open_sandbox: OpenSandbox, letter: str) -> None:
    def answer() -> str:
        return letter * (1_000_000 // len(letter.encode()))

    error = await failure_of(open_sandbox, answer)
    assert "over the limit of 1,000,000: keep large data in a file and return its location" in error["message"]


async def test_a_result_just_within_the_limit_is_kept(open_sandbox: OpenSandbox) -> None:
    pipeline = Pipeline("large")

    @pipeline.step
    async def answer() -> str:
        return "x" * 999_998

    async with open_sandbox(pipeline) as sandbox:
        run = await sandbox.run(pipeline)
    assert len(run.results["answer"]) == 999_998


@pytest.mark.parametrize("text", ["nul \0 here", "half a pair \ud800", "x" * 100_000])
async def test_any_error_message_can_be_recorded(open_sandbox: OpenSandbox, text: str) -> None:
    class StrangeError(Exception):
        code = text

    async def answer() -> int:
        raise StrangeError(text)

    error = await failure_of(open_sandbox, answer)
    assert error["message"][:4] == text[:4]
    assert len(error["message"]) <= 2_000


async def test_an_error_whose_message_cannot_be_read_is_a_failed_attempt(open_sandbox: OpenSandbox) -> None:
    class MuteError(Exception):
        def __str__(self) -> str:
            raise RuntimeError("I have no words")

    async def answer() -> int:
        raise MuteError

    assert "MuteError" in (await failure_of(open_sandbox, answer))["message"]


async def test_a_step_that_raises_system_exit_fails_its_attempt(open_sandbox: OpenSandbox) -> None:
    async def answer() -> int:
        sys.exit(3)

    assert (await failure_of(open_sandbox, answer))["type"] == "SystemExit"


async def test_a_call_within_once_that_raises_system_exit_fails_its_attempt(open_sandbox: OpenSandbox) -> None:
    async def answer(*, ctx: Context) -> int:
        return int(await ctx.once("exit", sys.exit))

    assert "SystemExit" in (await failure_of(open_sandbox, answer))["message"]


async def test_a_step_that_cancels_itself_has_failed_and_is_not_retried_for_ever(open_sandbox: OpenSandbox) -> None:
    async def answer() -> int:
        inner = asyncio.create_task(asyncio.Event().wait())
        inner.cancel()
        await inner
        return 1

    assert (await failure_of(open_sandbox, answer))["type"] == "CancelledError"


async def test_an_input_that_the_current_model_rejects_is_a_failed_attempt(open_sandbox: OpenSandbox) -> None:
    pipeline = Pipeline("decode", retry=Retry(0))

    @pipeline.step
    async def first() -> Any:
        return "not a date"

    @pipeline.step
    async def second(first: datetime) -> str:
        return first.isoformat()

    async with open_sandbox(pipeline) as sandbox:
        run = await sandbox.run(pipeline)
        errors = await sandbox.client.runs.get_errors(run.id)
    assert run.state == "failed"
    assert "datetime" in errors["second", ""]["message"]


async def failure_of(
    open_sandbox: OpenSandbox, function: Callable[..., Awaitable[Any] | Any], retry: Retry | None = None
) -> dict[str, Any]:
    """Return the recorded error of a step with this function, which must fail permanently at its first attempt."""
    pipeline = Pipeline("failure", retry=retry or Retry(0))
    pipeline.step(function)
    async with open_sandbox(pipeline) as sandbox:
        run = await sandbox.run(pipeline)
        assert run.state == "failed"
        (job,) = await sandbox.client.runs.list_jobs(run.id)
        assert (job.state, job.attempt) == ("failed", 1)
        ((_, error),) = (await sandbox.client.runs.get_errors(run.id)).items()
        assert job.code == error["code"]
        return dict(error)


def make_broken_and_a_slow_step() -> Pipeline:
    pipeline = Pipeline("stops", retry=Retry(0))

    @pipeline.step(priority=1)
    async def broken() -> int:
        raise OSError("no route to host")

    @pipeline.step(priority=1)
    async def slow() -> int:
        return 1

    @pipeline.step
    async def idle() -> int:
        return 2

    @pipeline.step
    async def after_slow(slow: int) -> int:
        return slow

    @pipeline.step
    async def both(slow: int, idle: int) -> int:
        return slow + idle

    return pipeline


def make_continuing_failure() -> Pipeline:
    pipeline = Pipeline("goes-on", retry=Retry(0))

    @pipeline.step(on_failure="continue")
    async def broken() -> int:
        raise OSError("no route to host")

    @pipeline.step
    async def other() -> int:
        return 1

    return pipeline


def make_failing_items(*unlucky: int, on_failure: Any = "continue") -> Pipeline:
    pipeline = Pipeline("items", retry=Retry(0))

    @pipeline.step
    async def numbers() -> list[int]:
        return [1, 2, 3, 4]

    @pipeline.each(numbers, on_failure=on_failure)
    async def square(number: int) -> int:
        if number in unlucky:
            raise GiveUp(f"{number} is unlucky", code="UNLUCKY")
        return number * number

    return pipeline
