"""The threads that run `def` steps: one step's error must never touch another step's result."""

from __future__ import annotations

import asyncio
import threading
from collections import deque
from typing import Any

import pytest

from retoma.worker.thread_pool import ThreadPool
from tests.wait_timeout import WAIT_TIMEOUT


class Nameless(BaseException):
    def __repr__(self) -> str:
        raise RuntimeError("no repr")

    __str__ = __repr__


def fail_without_a_name() -> None:
    raise Nameless


async def test_an_error_without_a_repr_takes_no_other_result_with_it() -> None:
    threads = ThreadPool(8)
    try:
        async with asyncio.timeout(WAIT_TIMEOUT):
            calls = [lambda: 1, fail_without_a_name, lambda: 2, fail_without_a_name, lambda: 3]
            first = await asyncio.gather(*map(threads.call, calls), return_exceptions=True)
            assert [answer for answer in first if isinstance(answer, int)] == [1, 2, 3]
            assert all("Nameless" in str(answer) for answer in first if not isinstance(answer, int))
            assert await threads.call(lambda: 4) == 4
    finally:
        threads.close()


class Unreadable(Exception):
    def __getattribute__(self, name: str) -> Any:
        raise Unreadable


class Classless(Exception):
    @property  # type: ignore[misc]
    def __class__(self) -> Any:
        raise SystemExit(3)


@pytest.mark.parametrize("hostile", [Unreadable, Classless])
async def test_an_error_whose_attributes_cannot_be_read_takes_no_other_result_with_it(
    monkeypatch: pytest.MonkeyPatch, hostile: type[BaseException]
) -> None:
    def fail() -> None:
        raise hostile

    threads = ThreadPool(3)
    monkeypatch.setattr(threads, "_finished", MeetingPoint(3))
    try:
        async with asyncio.timeout(WAIT_TIMEOUT):
            calls = [lambda: 1, fail, lambda: 2]
            first, failed, last = await asyncio.gather(*map(threads.call, calls), return_exceptions=True)
    finally:
        threads.close()
    assert (first, last) == (1, 2)
    assert hostile.__name__ in str(failed)


class MeetingPoint(deque[Any]):
    """Lets an `append` return only once another thread has appended, too."""

    def __init__(self, parties: int) -> None:
        super().__init__()
        self._barrier = threading.Barrier(parties)

    def append(self, value: Any) -> None:
        super().append(value)
        self._barrier.wait()


async def test_results_that_end_in_the_same_moment_all_arrive(monkeypatch: pytest.MonkeyPatch) -> None:
    threads = ThreadPool(2)
    monkeypatch.setattr(threads, "_finished", MeetingPoint(2))
    try:
        async with asyncio.timeout(WAIT_TIMEOUT):
            assert await asyncio.gather(*map(threads.call, [lambda: 1, lambda: 2])) == [1, 2]
    finally:
        threads.close()
