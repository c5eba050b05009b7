"""Misbehaviour of callers and steps does no harm."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable
from datetime import UTC, datetime
from typing import Any
from uuid import UUID, uuid4

import pytest
from pydantic import BaseModel, Field, computed_field

from retoma import App, Items, Pipeline, Retry
from retoma.errors import DefinitionError, InvalidInput, NotFound
from tests.conftest import OpenSandbox
from tests.wait_timeout import WAIT_TIMEOUT


def one_step() -> Pipeline:
    pipeline = Pipeline("one")

    @pipeline.step
    def answer() -> int:
        return 42

    return pipeline


class Boom(BaseException):
    """Neither an Exception nor one that Python knows."""


@pytest.mark.parametrize("raised", [KeyboardInterrupt(), Boom("x"), GeneratorExit()])
async def test_any_exception_of_a_step_is_a_failed_attempt(open_sandbox: OpenSandbox, raised: BaseException) -> None:
    pipeline = Pipeline("raising", retry=Retry(0))

    @pipeline.step
    async def raising() -> None:
        raise raised

    async with open_sandbox(pipeline) as sandbox:
        run = await sandbox.run(pipeline)
        (error,) = (await sandbox.client.runs.get_errors(run.id)).values()
    assert run.state == "failed"
    assert error["type"] == type(raised).__name__


class Unreadable(Exception):
    def __getattribute__(self, name: str) -> Any:
        raise Unreadable


class OddClass(type):
    @property
    def __name__(cls) -> str:  # type: ignore[override]
        raise SystemExit(6)


class OddlyNamed(Exception, metaclass=OddClass):
    pass


class Untraceable(Exception):
    __cause__ = __context__ = __traceback__ = property(lambda self: 1 / 0)


def raise_in_async(raised: type[BaseException]) -> Pipeline:
    pipeline = Pipeline("raising", retry=Retry(0))

    @pipeline.step
    async def raising() -> None:
        raise raised()

    return pipeline


def raise_in_thread(raised: type[BaseException]) -> Pipeline:
    pipeline = Pipeline("raising", retry=Retry(0))

    @pipeline.step
    def raising() -> None:
        raise raised()

    return pipeline


@pytest.mark.parametrize("define", [raise_in_async, raise_in_thread])
@pytest.mark.parametrize("raised", [Unreadable, OddlyNamed, Untraceable], ids=["unreadable", "nameless", "untraceable"])
async def test_an_unreadable_error_is_a_failed_attempt_with_the_name_of_its_class(
    open_sandbox: OpenSandbox, define: Callable[[type[BaseException]], Pipeline], raised: type[BaseException]
) -> None:
    pipeline = define(raised)
    async with open_sandbox(pipeline) as sandbox, asyncio.timeout(WAIT_TIMEOUT):
        run = await sandbox.run(pipeline)
        (error,) = (await sandbox.client.runs.get_errors(run.id)).values()
    assert run.state == "failed"
    assert raised.__qualname__ in f"{error['type']} {error['message']}"


async def test_a_step_that_cancels_its_own_task_has_failed(open_sandbox: OpenSandbox) -> None:
    pipeline = Pipeline("suicidal", retry=Retry(0))

    @pipeline.step
    async def suicidal() -> None:
        task = asyncio.current_task()
        assert task is not None
        task.cancel()
        await asyncio.Event().wait()

    async with open_sandbox(pipeline) as sandbox, asyncio.timeout(WAIT_TIMEOUT):  # or it would be tried for ever
        run = await sandbox.run(pipeline)
        (error,) = (await sandbox.client.runs.get_errors(run.id)).values()
    assert run.state == "failed"
    assert error["message"] == "the step cancelled its own task"


async def test_bytes_reach_an_item_unchanged(open_sandbox: OpenSandbox) -> None:
    pipeline = Pipeline("bytes")

    @pipeline.step
    def parts() -> list[bytes]:
        return [b"abc"]

    @pipeline.each(parts)
    def length(part: bytes) -> str:
        return repr(part)

    async with open_sandbox(pipeline) as sandbox:
        run = await sandbox.run(pipeline)
    assert run.results["length"] == {"0": "b'abc'"}


class Aliased(BaseModel):
    video_id: int = Field(alias="videoId")

    @computed_field
    def twice(self) -> int:
        return self.video_id * 2


async def test_a_model_with_aliases_and_computed_fields_passes_between_steps(open_sandbox: OpenSandbox) -> None:
    pipeline = Pipeline("aliased", inputs=Aliased)

    @pipeline.step
    def video(video_id: int) -> list[Aliased]:
        return [Aliased(videoId=video_id)]

    @pipeline.each(video)
    def number(one: Aliased) -> int:
        return one.video_id

    async with open_sandbox(pipeline) as sandbox:
        run = await sandbox.run(pipeline, {"videoId": 7})
    assert run.results["number"] == {"0": 7}


def test_a_type_that_cannot_be_json_is_an_error_at_import() -> None:
    pipeline = Pipeline("threads")

    @pipeline.step
    def thread() -> threading.Thread:
        return threading.Thread()

    with pytest.raises(DefinitionError, match=r"'threads'.*'thread'.*its result is .* which cannot be JSON"):
        App("wrong", pipelines=[pipeline])


class Tagged(BaseModel):
    tags: set[str] = set()
    trace: UUID = Field(default_factory=uuid4)


async def test_neither_set_order_nor_a_generated_default_changes_the_input(
    open_sandbox: OpenSandbox,
) -> None:
    pipeline = Pipeline("tagged", inputs=Tagged)

    @pipeline.step
    def step(tags: set[str]) -> int:
        return len(tags)

    async with open_sandbox(pipeline) as sandbox:
        first = await sandbox.client.start(pipeline, {"tags": ["a", "b", "c"]}, key="k")
        again = await sandbox.client.start(pipeline, {"tags": ["c", "a", "b"]}, key="k")
    assert first.id == again.id


@pytest.mark.parametrize(
    "options",
    [
        {"tenant": ""},
        {"tenant": "a\0b"},
        {"key": "x" * 501},
        {"key": ""},
        {"priority": 10**15},
        {"priority": 1.5},
        {"run_at": datetime.max.replace(tzinfo=UTC)},
        {"run_at": datetime(2031, 1, 1)},
    ],
)
async def test_an_invalid_start_is_reported_and_affects_no_other(
    open_sandbox: OpenSandbox, options: dict[str, Any]
) -> None:
    pipeline = one_step()
    async with open_sandbox(pipeline) as sandbox:
        bad, good = await asyncio.gather(
            sandbox.client.start(pipeline, **options), sandbox.client.start(pipeline), return_exceptions=True
        )
        assert isinstance(bad, InvalidInput)
        assert not isinstance(good, BaseException)
        assert [run.id for run in await sandbox.client.runs.list()] == [good.id]


async def test_waiting_for_a_run_that_does_not_exist_is_not_found(open_sandbox: OpenSandbox) -> None:
    async with open_sandbox(one_step()) as sandbox:
        with pytest.raises(NotFound):
            await sandbox.client.wait(uuid4())


async def test_a_join_that_is_too_large_fails_alone_with_advice(open_sandbox: OpenSandbox) -> None:
    pipeline = Pipeline("fat", retry=Retry(0))

    @pipeline.step
    def numbers() -> list[int]:
        return list(range(110))

    @pipeline.each(numbers)
    def blob(number: int) -> str:
        return "a" * 950_000

    @pipeline.step
    def joined(blob: Items[str]) -> int:
        return len(blob)

    async with open_sandbox(pipeline) as sandbox:
        started = await sandbox.client.start(pipeline)
        await sandbox.work()
        run = await sandbox.client.runs.get(started.id)
        (error,) = (await sandbox.client.runs.get_errors(run.id)).values()
    assert run.state == "failed"
    assert "of 'blob' are over 100 MB together" in error["message"]
