"""Polls external work for all parked jobs. One poller per worker serves all of them."""

from __future__ import annotations

import asyncio
import importlib
import json
import time
from collections.abc import Awaitable, Callable, Mapping
from contextlib import suppress
from datetime import timedelta
from itertools import count
from typing import Any, TypeVar, get_args

from retoma.define.codec import MAX_RESULT_BYTES, count_bytes, encode_any
from retoma.define.external_work import ExternalWorkState, PollResult
from retoma.engine.application_calls import call_application
from retoma.errors import DatabaseUnavailable, describe_error
from retoma.logs import get_logger
from retoma.store import external_work
from retoma.store.database import Database
from retoma.store.external_work import DuePoll
from retoma.tracebacks import release_frames
from retoma.worker.attempt import MAX_MESSAGE_LENGTH, clean_text
from retoma.worker.served_versions import ServedVersions

log = get_logger(__name__)
Answer = TypeVar("Answer")
MAX_CONCURRENT_POLLS = 100
PROVIDER_TIMEOUT = 30.0  # seconds for one call of a poll or cancel function
MIN_CALL_SECONDS = 5.0  # seconds for a call even if the work has no time left
MAX_BLOCK_SECONDS = 5.0  # beyond that timeout, after which a call counts as blocking the event loop
LEASE = timedelta(seconds=3 * PROVIDER_TIMEOUT)  # after which another process polls
STOP_MESSAGES = {
    "RUN_STOPPED": "its run was stopped",
    "QUEUE_TIMEOUT": "the external work waited too long before it started",
    "TIMEOUT": "the external work took too long",
}


class ExternalWorkPoller:
    """Polls external work, and calls `on_end` when some has ended, after the commit.

    A poll that was running when its worker died is a suspect. A worker holds one suspect at a time, a poll or a step:
    `holds_suspect` says whether it holds such a step.
    """

    def __init__(
        self,
        database: Database,
        served_versions: ServedVersions,
        on_end: Callable[[], None],
        holds_suspect: Callable[[], bool] = lambda: False,
    ) -> None:
        self.worker: int | None = None  # set when the worker has registered
        self._database = database
        self._served_versions = served_versions
        self._on_end = on_end
        self._holds_suspect = holds_suspect
        self._due = asyncio.Event()
        self._polling: set[asyncio.Task[None]] = set()
        self._suspects = 0  # calls of suspects that are in progress or being claimed
        self._calls: dict[int, tuple[str, float]] = {}  # step and deadline of each call in progress
        self._numbers = count()
        self._watch_timer: asyncio.TimerHandle | None = None
        self._watched_at = 0.0

    @property
    def has_suspect(self) -> bool:
        """Whether a poll is in progress that may kill this worker, as it may have killed another."""
        return self._suspects > 0

    @property
    def overdue_steps(self) -> list[str]:
        """Steps with a poll that blocks the event loop beyond its timeout. For other threads."""
        now = time.monotonic()
        if now - self._watched_at < MAX_BLOCK_SECONDS:
            return []
        return [step for step, deadline in tuple(self._calls.values()) if now > deadline + MAX_BLOCK_SECONDS]

    def wake(self) -> None:
        """Poll now: something is due."""
        self._due.set()

    async def run(self) -> None:
        """Poll whenever something is due, until cancelled. Other workers repeat the polls that were in progress."""
        try:
            while True:
                await self._due.wait()
                self._due.clear()
                try:
                    await self._start_due_polls()
                except DatabaseUnavailable as error:
                    log.warning(
                        "external_polls_delayed",
                        message="could not claim due polls of external work: the database is unreachable",
                        error=error,
                    )
        finally:
            for task in self._polling:
                task.cancel()
            await asyncio.gather(*self._polling, return_exceptions=True)

    async def poll_due(self) -> int:
        """Poll all that is due now, wait until it is recorded, and return the number of polls. For tests."""
        polls = await self._claim_due(MAX_CONCURRENT_POLLS)
        await asyncio.gather(*map(self._poll_and_record, polls))
        return len(polls)

    async def _start_due_polls(self) -> None:
        room = MAX_CONCURRENT_POLLS - len(self._polling)
        if room > 0:
            for due_poll in await self._claim_due(room):
                task = asyncio.ensure_future(self._poll_and_record(due_poll))
                self._polling.add(task)
                task.add_done_callback(self._on_poll_done)

    def _on_poll_done(self, task: asyncio.Task[None]) -> None:
        if len(self._polling) == MAX_CONCURRENT_POLLS:
            self.wake()  # more may have been due than there was room for
        self._polling.discard(task)
        if not task.cancelled() and (error := task.exception()) is not None:
            log.error(
                "external_poll_crashed",
                message="an unexpected error ended a poll of external work; it will be polled again",
                error=error,
                exc_info=error,
            )
            release_frames(error)

    async def _claim_due(self, room: int) -> list[DuePoll]:
        suspect = not (self.has_suspect or self._holds_suspect())
        self._suspects += suspect
        try:
            polls = await external_work.poll_due(
                self._database, self._served_versions.version_numbers, room, LEASE, self.worker, suspect=suspect
            )
        finally:
            self._suspects -= suspect
        # Count them now, not when their task starts: the next claim may come first.
        self._suspects += sum(each.calls_application and each.worker_deaths > 0 for each in polls)
        return polls

    async def _poll_and_record(self, due_poll: DuePoll) -> None:
        deadline = time.monotonic() + due_poll.seconds_left
        try:
            poll_result, result, failed = await self._get_poll_result(due_poll, deadline)
        finally:
            self._suspects -= due_poll.calls_application and due_poll.worker_deaths > 0
        given_up = due_poll.given_up or time.monotonic() >= deadline
        poll_result = _apply_stop(due_poll, poll_result, given_up=given_up)
        with suppress(DatabaseUnavailable):  # the work is polled again when the lease expires
            recorded = await external_work.record_poll(
                self._database,
                due_poll,
                state=poll_result.state,
                progress=poll_result.progress,
                result=result,
                error=_format_error(poll_result),
                failed=failed,
                stopping=due_poll.stop is not None,
            )
            if recorded and poll_result.is_final:
                self._on_end()

    async def _get_poll_result(self, due_poll: DuePoll, deadline: float) -> tuple[PollResult, str | None, bool]:
        """Return the state of the external work, its result as JSON, and whether the poll failed."""
        if not due_poll.calls_application:
            return PollResult(due_poll.state), None, True
        if due_poll.stop is not None and due_poll.cancel is not None:
            await self._call_cancel(due_poll, deadline)
        if due_poll.poll is None:
            return *_read_safely(due_poll, _read_callback(due_poll)), False
        try:
            return *await self._call_provider(due_poll, deadline, lambda: self._call_poll(due_poll)), False
        except Exception as error:  # noqa: BLE001  (whatever the provider's client raised, the work continues)
            log.warning(
                "external_poll_failed",
                message="could not get the state of external work; it will be polled again",
                run=str(due_poll.run),
                step=due_poll.step,
                item=due_poll.item,
                error=error,
            )
            release_frames(error)
            return PollResult(due_poll.state), None, True

    async def _call_poll(self, due_poll: DuePoll) -> tuple[PollResult, str | None]:
        return _read_safely(due_poll, await self._find_function(due_poll.poll or "")(json.loads(due_poll.external_id)))

    async def _call_cancel(self, due_poll: DuePoll, deadline: float) -> None:
        try:
            await self._call_provider(
                due_poll, deadline, lambda: self._find_function(due_poll.cancel or "")(json.loads(due_poll.external_id))
            )
        except Exception as error:  # noqa: BLE001  (it is cancelled again at the next poll)
            log.warning(
                "external_cancel_failed",
                message="could not cancel external work; retrying at the next poll",
                run=str(due_poll.run),
                step=due_poll.step,
                item=due_poll.item,
                error=error,
            )
            release_frames(error)

    def _find_function(self, location: str) -> Callable[[Any], Any]:
        return find_function(location, self._served_versions.resources)

    async def _call_provider(self, due_poll: DuePoll, deadline: float, call: Callable[[], Awaitable[Answer]]) -> Answer:
        number, now = next(self._numbers), time.monotonic()
        timeout = min(PROVIDER_TIMEOUT, max(MIN_CALL_SECONDS, deadline - now))
        self._calls[number] = (due_poll.step, now + timeout)
        if self._watch_timer is None:
            self._watch_loop()
        try:
            return await call_application(call, timeout)
        finally:
            del self._calls[number]

    def _watch_loop(self) -> None:
        """Record every second, while calls are in progress, that the event loop is not blocked."""
        self._watched_at = time.monotonic()
        self._watch_timer = asyncio.get_running_loop().call_later(1.0, self._watch_loop) if self._calls else None


def find_function(location: str, resources: Mapping[str, Any]) -> Callable[[Any], Any]:
    """Return the function at a location that `locate_function` wrote."""
    module, colon, name = location.partition(":")
    owner: Any = importlib.import_module(module) if colon else None
    if not colon:
        resource, _, name = location.partition(".")
        owner = resources[resource]
    for part in name.split("."):
        owner = getattr(owner, part)
    function: Callable[[Any], Any] = owner
    return function


def _read_callback(due_poll: DuePoll) -> PollResult:
    if due_poll.callback_received:
        return PollResult("succeeded", result=json.loads(due_poll.callback_body or "null"))
    return PollResult("cancelled" if due_poll.stop else due_poll.state)


def _read_safely(due_poll: DuePoll, answer: Any) -> tuple[PollResult, str | None]:
    """Return the poll result, with the work's result as JSON. Fail on an invalid one: polling again would not help."""
    try:
        return _read_result(due_poll, answer)
    except BaseException as error:  # noqa: BLE001  (reading it runs application code)
        return _build_unreadable(f"{due_poll.poll} returned an unreadable result: {describe_error(error)}"), None


def _read_result(due_poll: DuePoll, answer: Any) -> tuple[PollResult, str | None]:
    if not isinstance(answer, PollResult) or answer.state not in get_args(ExternalWorkState):
        return _build_unreadable(
            f"{due_poll.poll} returned {answer!r:.80}: return a retoma.PollResult with one of its states"
        ), None
    if answer.state != "succeeded":
        code, message = (None if text is None else str(text) for text in (answer.code, answer.message))
        return PollResult(answer.state, code=code, message=message, progress=_check_progress(answer)), None
    try:
        result = encode_any(answer.result)
    except Exception as error:  # noqa: BLE001  (it may contain anything)
        return _build_unreadable(f"the result of the external work cannot be written as JSON: {error}"), None
    if (size := count_bytes(result)) > MAX_RESULT_BYTES:
        message = (
            f"the result of the external work is {size:,} bytes of JSON, over the limit of {MAX_RESULT_BYTES:,}: "
            "keep it in a file and return its location"
        )
        return PollResult("failed", code="RESULT_TOO_LARGE", message=message), None
    return PollResult("succeeded", progress=_check_progress(answer)), result


def _build_unreadable(message: str) -> PollResult:
    return PollResult("failed", code="INVALID_POLL_RESULT", message=message)


def _apply_stop(due_poll: DuePoll, poll_result: PollResult, *, given_up: bool) -> PollResult:
    """Apply the reason why the work was stopped, unless it succeeded. Without a confirmed end it is lost."""
    if due_poll.stop is None or poll_result.state == "succeeded":
        return poll_result
    if poll_result.is_final:
        return PollResult(poll_result.state, code=due_poll.stop, message=STOP_MESSAGES[due_poll.stop])
    if given_up:
        sentence = f"{STOP_MESSAGES[due_poll.stop]}, and the provider did not confirm that it ended"
        return PollResult("lost", code=due_poll.stop, message=sentence)
    return poll_result


def _check_progress(poll_result: PollResult) -> float | None:
    """Return the progress, or None if it is not between 0 and 1: a wrong one is not worth a failure."""
    progress = poll_result.progress
    return progress if isinstance(progress, int | float) and 0 <= progress <= 1 else None


def _format_error(poll_result: PollResult) -> str | None:
    if not poll_result.is_final or poll_result.state == "succeeded":
        return None
    code, message = (
        poll_result.code or poll_result.state.upper(),
        poll_result.message or f"the external work ended as {poll_result.state}",
    )
    return json.dumps({"code": clean_text(code), "message": clean_text(message)[:MAX_MESSAGE_LENGTH]})
