"""Heartbeats, sent from a separate thread so that a busy event loop does not delay them."""

from __future__ import annotations

import asyncio
import sys
import threading
import traceback
from collections.abc import Callable
from contextlib import suppress
from datetime import timedelta

import msgspec

from retoma.logs import get_logger
from retoma.records import JobStack
from retoma.store.database import DATABASE_ERRORS, Database, DedicatedConnection

log = get_logger(__name__)
SECONDS_BETWEEN_HEARTBEATS = 2.0


class HeartbeatThread:
    """Sends heartbeats until stopped. Calls `on_declared_dead`, from its thread, if the worker was declared dead, and
    `on_drain_requested` after each heartbeat once a person has asked the worker to drain.

    If `list_overdue` returns steps that block the event loop, it deregisters the worker, so its jobs run elsewhere, and
    calls `on_blocked`. If a person asks for the stacks of its jobs, it sends those of `list_stacks`.

    It sends at least three heartbeats within `heartbeat_timeout`, and soon repeats one that failed.
    """

    def __init__(
        self,
        database: Database,
        worker: int,
        heartbeat_timeout: timedelta,
        *,
        on_declared_dead: Callable[[], object],
        on_drain_requested: Callable[[], object],
        list_overdue: Callable[[], list[str]],
        list_stacks: Callable[[int], list[JobStack]],
        on_blocked: Callable[[], None],
    ) -> None:
        self._database = database
        self._worker = worker
        self._interval = min(SECONDS_BETWEEN_HEARTBEATS, heartbeat_timeout.total_seconds() / 3)
        self._on_declared_dead = on_declared_dead
        self._on_drain_requested = on_drain_requested
        self._list_overdue = list_overdue
        self._list_stacks = list_stacks
        self._on_blocked = on_blocked
        self._loop_thread = threading.get_ident()
        self._stopped = threading.Event()
        self._thread = threading.Thread(
            target=lambda: asyncio.run(self._send_heartbeats()), name="retoma-heartbeat", daemon=True
        )

    def start(self) -> None:
        self._thread.start()

    def stop(self) -> None:
        self._stopped.set()
        self._thread.join(timeout=5)

    async def _send_heartbeats(self) -> None:
        link = DedicatedConnection(self._database)
        was_overdue = False
        while not self._stopped.is_set():
            steps = self._list_overdue()
            # Twice in a row: after the whole process was suspended, the loop needs a moment to check its timeouts.
            if steps and was_overdue:
                await self._report_blocked_loop(link, steps)
                break
            was_overdue = bool(steps)
            is_alive = await self._send_heartbeat(link)
            if is_alive is False:
                self._on_declared_dead()
                break
            await asyncio.to_thread(self._stopped.wait, self._interval if is_alive else self._interval / 4)
        await link.close()

    async def _report_blocked_loop(self, link: DedicatedConnection, steps: list[str]) -> None:
        stack = "".join(traceback.format_stack(sys._current_frames()[self._loop_thread]))
        log.error(
            "event_loop_blocked",
            message="a step blocks the event loop: define it with `def` instead of `async def`",
            worker=self._worker,
            steps=steps,
            at=stack,
        )
        with suppress(*DATABASE_ERRORS):
            await link.call("workers", "deregister_blocked_worker", [self._worker], self._interval)
        self._on_blocked()

    async def _send_heartbeat(self, link: DedicatedConnection) -> bool | None:
        """Return False if the worker was declared dead, and None if the heartbeat failed, which does not mean that."""
        try:
            answer = await link.call("workers", "send_heartbeat", [self._worker], self._interval)
        except Exception as error:  # noqa: BLE001  (the next heartbeat tries again, whatever it was)
            log.warning(
                "heartbeat_missed",
                message="could not send a heartbeat; retrying",
                worker=self._worker,
                error=error,
            )
            return None
        if answer and answer[0]["is_draining"]:
            self._on_drain_requested()
        if answer and answer[0]["wants_stacks"]:
            await self._report_stacks(link)
        return bool(answer)

    async def _report_stacks(self, link: DedicatedConnection) -> None:
        """Answer a person's request. If that fails, the next heartbeat tries again."""
        try:
            jobs = msgspec.json.encode(self._list_stacks(self._loop_thread)).decode()
            await link.call("workers", "report_stacks", [jobs, self._worker], self._interval)
        except Exception as error:  # noqa: BLE001  (it must not keep the worker from sending heartbeats)
            log.warning("stacks_not_reported", message="could not report stacks", worker=self._worker, error=error)
