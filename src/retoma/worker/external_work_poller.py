"""Polls external work, and looks for effects that jobs left behind. One poller per worker serves all of them."""

from __future__ import annotations

import asyncio
import importlib
import json
import time
from collections.abc import Awaitable, Callable, Mapping, Sequence
from contextlib import suppress
from datetime import timedelta
from itertools import count
from math import inf
from typing import Any, NamedTuple, get_args

from retoma.define.codec import MAX_RESULT_BYTES, count_bytes, encode_any
from retoma.define.connections import PerTenant
from retoma.define.context import call_maybe_async
from retoma.define.external_work import ExternalWorkState, PollResult, parse_provider_method
from retoma.define.provider_chain import ProviderChain
from retoma.engine.guarded_calls import call_application
from retoma.errors import DatabaseUnavailable, describe_error
from retoma.logs import get_logger
from retoma.store import effects, external_work, runs
from retoma.store.database import Database
from retoma.store.effects import DueLook, Resolution
from retoma.store.external_work import DuePoll, DueRequest
from retoma.tracebacks import release_frames
from retoma.worker.attempt import MAX_MESSAGE_LENGTH, clean_text
from retoma.worker.served_versions import ServedVersions

log = get_logger(__name__)
MAX_CONCURRENT_CALLS = 100
PROVIDER_TIMEOUT = 30.0  # seconds for one call of a poll, find or cancel function
MIN_CALL_SECONDS = 5.0  # seconds for a call even if the work has no time left
MAX_BLOCK_SECONDS = 5.0  # beyond that timeout, after which a call counts as blocking the event loop
LEASE = timedelta(seconds=3 * PROVIDER_TIMEOUT)  # after which another process repeats the poll or look
STOP_MESSAGES = {
    "RUN_STOPPED": "its run was stopped",
    "JOB_ENDED": "its job ended without it",
    "QUEUE_TIMEOUT": "the external work waited too long before it started",
    "TIMEOUT": "the external work took too long",
}


class ExternalWorkPoller:
    """Polls external work and looks for abandoned effects. Calls `on_end` when one has ended, after the commit.

    A poll or look that was running when its worker died is a suspect. A worker holds one suspect at a time, a poll, a
    look or a step: `holds_suspect` says whether it holds such a step.
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
        self._tasks: set[asyncio.Task[None]] = set()
        self._suspects = 0  # calls of suspects that are in progress or being claimed
        self._calls: dict[int, tuple[str, float]] = {}  # step and deadline of each call in progress
        self._numbers = count()
        self._watch_timer: asyncio.TimerHandle | None = None
        self._watched_at = 0.0

    @property
    def has_suspect(self) -> bool:
        """Whether a poll or look is in progress that may kill this worker, as it may have killed another."""
        return self._suspects > 0

    @property
    def overdue_steps(self) -> list[str]:
        """Steps with a poll or look that blocks the event loop beyond its timeout. For other threads."""
        now = time.monotonic()
        if now - self._watched_at < MAX_BLOCK_SECONDS:
            return []
        return [step for step, deadline in tuple(self._calls.values()) if now > deadline + MAX_BLOCK_SECONDS]

    def wake(self) -> None:
        """Poll now: something is due."""
        self._due.set()

    async def run(self) -> None:
        """Poll and look whenever something is due, until cancelled. Other workers repeat what was in progress."""
        try:
            while True:
                await self._due.wait()
                self._due.clear()
                try:
                    await self._start_due_calls()
                except DatabaseUnavailable as error:
                    log.warning(
                        "external_polls_delayed",
                        message="could not claim due polls of external work: the database is unreachable",
                        error=error,
                    )
        finally:
            for task in self._tasks:
                task.cancel()
            await asyncio.gather(*self._tasks, return_exceptions=True)

    async def poll_due(self) -> int:
        """Make all polls and looks that are due now, and return their number once they are recorded. For tests."""
        due = await self._claim_due(external_work.poll_due, MAX_CONCURRENT_CALLS)
        due += await self._claim_due(effects.claim_looks, MAX_CONCURRENT_CALLS)
        await asyncio.gather(*map(self._call_and_record, due))
        return len(due)

    async def _start_due_calls(self) -> None:
        # Start the polls before the second query: if that fails, they would wait until their leases expire.
        for claim in (external_work.poll_due, effects.claim_looks):
            room = MAX_CONCURRENT_CALLS - len(self._tasks)
            for due in await self._claim_due(claim, room) if room > 0 else []:
                task = asyncio.ensure_future(self._call_and_record(due))
                self._tasks.add(task)
                task.add_done_callback(self._on_call_done)

    def _on_call_done(self, task: asyncio.Task[None]) -> None:
        if len(self._tasks) == MAX_CONCURRENT_CALLS:
            self.wake()  # more may have been due than there was room for
        self._tasks.discard(task)
        if not task.cancelled() and (error := task.exception()) is not None:
            log.error(
                "external_poll_crashed",
                message="an unexpected error ended a poll of external work; it will be polled again",
                error=error,
                exc_info=error,
            )
            release_frames(error)

    async def _claim_due(
        self, claim: Callable[..., Awaitable[Sequence[DuePoll | DueLook]]], room: int
    ) -> list[DuePoll | DueLook]:
        suspect = not (self.has_suspect or self._holds_suspect())
        self._suspects += suspect
        try:
            versions = self._served_versions.version_numbers
            due = await claim(self._database, DueRequest(versions, room, LEASE, self.worker, suspect))
        finally:
            self._suspects -= suspect
        # Count them now, not when their task starts: the next claim may come first.
        self._suspects += sum(each.is_suspect for each in due)
        return list(due)

    async def _call_and_record(self, due: DuePoll | DueLook) -> None:
        await (self._poll_and_record(due) if isinstance(due, DuePoll) else self._look_and_record(due))

    async def _look_and_record(self, look: DueLook) -> None:
        try:
            found = await self._look_for(look)
        finally:
            self._suspects -= look.is_suspect
        with suppress(DatabaseUnavailable):  # another look is made when the lease expires
            recorded = await effects.record_look(
                self._database, look, found.resolution, value=found.value, error=found.error
            )
            if recorded and found.resolution is not None:
                self._on_end()

    async def _look_for(self, look: DueLook) -> _Found:
        """Find out whether an abandoned effect happened, and end what it started."""
        if look.is_given_up:
            return _Found(error=_to_error_json("QUARANTINED", "three workers died while they looked for it"))
        value = look.value
        try:
            if value is None:
                answer = await self._call_function(look, inf, look.find or "", look.find_key)
                if answer is None:
                    return _Found("not_submitted")
                value = encode_any(answer)
            if look.is_submission:
                return _Found("external_work", value)
            if look.cancel is None:
                return _Found("done", value)
            await self._call_function(look, inf, look.cancel, json.loads(value))
            return _Found("cancelled", value)
        except Exception as error:  # noqa: BLE001  (whatever the provider's client raised, the look is repeated)
            log.warning(
                "effect_look_failed",
                message="could not find out what became of an effect, or not cancel it; it is tried again for a day",
                run=str(look.run),
                step=look.step,
                item=look.item,
                effect=look.name,
                error=error,
            )
            try:
                return _Found(value=value, error=_to_error_json("LOOK_FAILED", describe_error(error)))
            finally:
                release_frames(error)

    async def _poll_and_record(self, due_poll: DuePoll) -> None:
        deadline = time.monotonic() + due_poll.seconds_left
        try:
            poll_result, result, failed = await self._get_poll_result(due_poll, deadline)
        finally:
            self._suspects -= due_poll.is_suspect
        given_up = due_poll.given_up or not due_poll.can_confirm_end or time.monotonic() >= deadline
        failed = failed or (given_up and due_poll.stop is not None and not poll_result.is_final)
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
        cancels = due_poll.stop is not None and due_poll.cancel is not None
        is_cancelled = cancels and await self._call_cancel(due_poll, deadline)
        if due_poll.poll is None:
            return *_read_safely(due_poll, _read_callback(due_poll, is_cancelled=is_cancelled)), False
        try:
            answer = await self._call_function(due_poll, deadline, due_poll.poll, json.loads(due_poll.external_id))
            return *_read_safely(due_poll, answer), False
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

    async def _call_cancel(self, due_poll: DuePoll, deadline: float) -> bool:
        """Return whether the provider accepted the cancellation."""
        try:
            await self._call_function(due_poll, deadline, due_poll.cancel or "", json.loads(due_poll.external_id))
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
            return False
        return True

    async def _call_function(self, due: DuePoll | DueLook, deadline: float, location: str, argument: Any) -> Any:
        """Call a poll, find or cancel function, which may be async."""
        owners = await self._bind_owner(due, location)
        number, now = next(self._numbers), time.monotonic()
        timeout = min(PROVIDER_TIMEOUT, max(MIN_CALL_SECONDS, deadline - now))
        self._calls[number] = (due.step, now + timeout)
        if self._watch_timer is None:
            self._watch_loop()
        try:
            return await call_application(
                lambda: call_maybe_async(lambda: find_function(location, owners)(argument)), timeout
            )
        finally:
            del self._calls[number]

    async def _bind_owner(self, due: DuePoll | DueLook, location: str) -> Mapping[str, Any]:
        """Return the owners of functions. If the one at this location is per tenant, it is that of the job's tenant."""
        owners = self._served_versions.get_owners(due.version)
        name = get_owner_name(location)
        if not isinstance(owners.get(name), PerTenant):
            return owners
        tenant = await runs.get_tenant(self._database, due.run)
        return await self._served_versions.tenant_resources.resolve({name: owners[name]}, tenant)

    def _watch_loop(self) -> None:
        """Record every second, while calls are in progress, that the event loop is not blocked."""
        self._watched_at = time.monotonic()
        self._watch_timer = asyncio.get_running_loop().call_later(1.0, self._watch_loop) if self._calls else None


class _Found(NamedTuple):
    """What a look found: what became of the effect, None if the look failed; and its value and the error as JSON."""

    resolution: Resolution | None = None
    value: str | None = None
    error: str | None = None


def find_function(location: str, resources: Mapping[str, Any]) -> Callable[[Any], Any]:
    """Return the function at a location that `locate_function` wrote."""
    owner: Any
    module, colon, name = location.partition(":")
    if colon:
        owner = importlib.import_module(module)
    elif (of_chain := parse_provider_method(location)) is not None:
        owner, name = _get_chain_provider(resources[of_chain.chain], of_chain.provider), of_chain.method
    else:
        name = location.partition(".")[2]
        owner = resources[get_owner_name(location)]
        if isinstance(owner, ProviderChain):  # the resource became a chain after the location was recorded
            owner = owner.get_provider(owner.names[0])
    for part in name.split("."):
        owner = getattr(owner, part)
    function: Callable[[Any], Any] = owner
    return function


def _get_chain_provider(resource: Any, name: str) -> Any:
    """Return a provider of a chain, also if the resource of a tenant has become this provider alone."""
    if isinstance(resource, ProviderChain):
        return resource.get_provider(name)
    if getattr(resource, "name", None) == name:
        return resource
    raise LookupError(f"{type(resource).__name__} is no chain with a provider {name!r}")


def get_owner_name(location: str) -> str:
    """Return the name of the resource at a location, or one that no resource has if it is a function of a module."""
    of_chain = parse_provider_method(location)
    return location.partition(".")[0] if of_chain is None else of_chain.chain


def _read_callback(due_poll: DuePoll, *, is_cancelled: bool) -> PollResult:
    if due_poll.callback_received:
        return PollResult("succeeded", result=json.loads(due_poll.callback_body or "null"))
    return PollResult("cancelled" if is_cancelled else due_poll.state)


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
    return _to_error_json(code, message)


def _to_error_json(code: str, message: str) -> str:
    return json.dumps({"code": clean_text(code), "message": clean_text(message)[:MAX_MESSAGE_LENGTH]})
