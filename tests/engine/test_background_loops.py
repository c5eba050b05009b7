from __future__ import annotations

import asyncio
from contextlib import suppress

import pytest

from retoma.engine import background_loops
from tests.wait_timeout import WAIT_TIMEOUT


async def test_a_failed_loop_is_restarted_and_logged(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(background_loops, "SECONDS_BEFORE_RESTART", 0.0)
    begun = 0
    going = asyncio.Event()

    async def loop() -> None:
        nonlocal begun
        begun += 1
        if begun < 3:
            raise ValueError("a bug of ours")
        going.set()
        await asyncio.Event().wait()

    task = asyncio.create_task(background_loops.run_with_restarts("maintenance", loop))
    async with asyncio.timeout(WAIT_TIMEOUT):
        await going.wait()
    task.cancel()
    with suppress(asyncio.CancelledError):
        await task
    assert begun == 3
    assert [vars(record)["event"] for record in caplog.records] == ["background_loop_failed"] * 2


def test_an_error_without_a_message_is_logged_by_its_name(caplog: pytest.LogCaptureFixture) -> None:
    background_loops.log.warning("heartbeat_missed", message="retrying", error=TimeoutError())
    background_loops.log.warning("heartbeat_missed", message="retrying", error=ValueError("the line is cut"))
    assert [vars(record)["error"] for record in caplog.records] == ["TimeoutError", "the line is cut"]


async def test_a_loop_that_is_cancelled_ends() -> None:
    task = asyncio.create_task(background_loops.run_with_restarts("maintenance", asyncio.Event().wait))  # type: ignore[arg-type]
    await asyncio.sleep(0)
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
