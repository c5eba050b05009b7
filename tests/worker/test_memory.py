"""The memory of an attempt is freed when the attempt ends, without garbage collection."""

from __future__ import annotations

import asyncio
import gc
import weakref
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import pytest

from retoma import GiveUp, NeedsReview, Pipeline, Retry, RetryLater, minutes
from retoma.worker.thread_pool import ThreadPool
from tests.conftest import OpenSandbox


class Document:
    """Represents the megabytes that a step may hold in a variable."""


class Held:
    """Documents of all attempts, as long as something refers to them."""

    def __init__(self) -> None:
        self.made = 0
        self._alive: weakref.WeakSet[Document] = weakref.WeakSet()

    def document(self) -> Document:
        self.made += 1
        document = Document()
        self._alive.add(document)
        return document

    @property
    def count(self) -> int:
        return len(self._alive)


@pytest.fixture
def no_collection() -> Iterator[None]:
    gc.collect()
    gc.disable()
    try:
        yield
    finally:
        gc.enable()


@dataclass(frozen=True)
class Frozen(Exception):
    """An error whose attributes cannot be set."""

    page: int


def fail_after_tries(way: str) -> None:
    """Fail as libraries do that try several times: the last error is in a variable when it is raised."""
    last: BaseException | None = None
    for _ in range(2):
        try:
            raise ERRORS[way]()
        except BaseException as error:  # noqa: BLE001
            last = error
    assert last is not None
    raise last


def group() -> BaseException:
    return ExceptionGroup("two pages", [raise_and_catch("first"), raise_and_catch("second")])


def raise_and_catch(text: str) -> Exception:
    document = ERRORS_HOLD.document()
    try:
        raise ValueError(text)
    except Exception as caught:  # noqa: BLE001
        assert document is not None
        return caught


ERRORS_HOLD = Held()
ERRORS: dict[str, Any] = {
    "error": lambda: ValueError("this document cannot be read"),
    "frozen": lambda: Frozen(3),
    "group": group,
    "give up": lambda: GiveUp("no such page"),
    "wait": lambda: RetryLater(minutes(1)),
    "review": lambda: NeedsReview("blurred"),
    "exit": lambda: SystemExit(1),
    "cancelled": lambda: asyncio.CancelledError(),
}


def make_reading_pipeline(held: Held, way: str, *, is_async: bool) -> Pipeline:
    pipeline = Pipeline("reading", retry=Retry(0))

    if is_async:

        @pipeline.step
        async def page() -> int:
            document = held.document()
            await asyncio.sleep(0)
            fail_after_tries(way)
            return id(document)

    else:

        @pipeline.step
        def page() -> int:  # type: ignore[misc]
            document = held.document()
            fail_after_tries(way)
            return id(document)

    return pipeline


@pytest.mark.parametrize("is_async", [False, True], ids=["def", "async def"])
@pytest.mark.parametrize("way", ERRORS)
async def test_failed_attempts_retain_no_memory(
    open_sandbox: OpenSandbox, no_collection: None, way: str, is_async: bool
) -> None:
    held = Held()
    async with open_sandbox(make_reading_pipeline(held, way, is_async=is_async)) as opened:
        for _ in range(3):
            await opened.client.start("reading")
        await opened.work(advance_clock=False)
        assert held.made >= 3
        assert (held.count, ERRORS_HOLD.count) == (0, 0)


async def test_idle_threads_retain_nothing_of_the_last_call(no_collection: None) -> None:
    held = Held()
    threads = ThreadPool(1)
    try:
        assert isinstance(await threads.call(held.document), Document)
        await threads.call(lambda: None)  # the thread has come back from the first call
        assert held.count == 0
    finally:
        threads.close()
