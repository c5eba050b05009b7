"""The backend of `ctx`: records effects (`ctx.once`) and external work (`ctx.external`) of attempts."""

from __future__ import annotations

import asyncio
import hashlib
import json
import secrets
import time
from collections.abc import Callable, Coroutine, Sequence
from datetime import datetime, timedelta
from math import inf
from operator import eq, is_
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

from retoma.define.charge import Charge
from retoma.define.codec import MAX_RESULT_BYTES, count_bytes, encode_any
from retoma.define.context import ExternalWorkLimits, call_maybe_async
from retoma.define.definition_errors import MAX_NAME_LENGTH
from retoma.define.durations import Duration, as_timedelta
from retoma.define.external_work import Cancel, Parked, ParkRequest, Poll, Stopped, locate_function
from retoma.define.file import File
from retoma.engine.claim_protocol import Claim
from retoma.errors import (
    DefinitionError,
    ExternalWorkFailed,
    GiveUp,
    LeaseLost,
    RetryLater,
    SubmissionUnknown,
    describe_error,
)
from retoma.records import Fact
from retoma.store import clock, external_work, facts, profiles, watchdog
from retoma.store.database import Database
from retoma.worker.charge_buffer import ChargeBuffer
from retoma.worker.step_call import StepCall

if TYPE_CHECKING:
    from retoma.files import FileStore

Answer = TypeVar("Answer")
CALLBACK_PATH = "/api/v1/callbacks/"
TOKEN_BYTES = 32
TOKEN_LIFETIME = timedelta(days=30)
TURNS = 3  # iterations of the event loop until a step sees the result of one of several concurrent calls
CALL_GRACE = 30.0  # seconds for a call in progress when its attempt is cancelled


class ContextBackends:
    """Creates the context backend of each attempt of a worker."""

    def __init__(
        self, database: Database, public_url: str | None, app: str = "", files: FileStore | None = None
    ) -> None:
        self.worker = 0  # set when the worker has registered
        self.database = database
        self.public_url = public_url
        self.app = app
        self.files = files
        self.charge_buffer = ChargeBuffer(database)

    def create(self, claim: Claim, step_call: StepCall) -> AttemptContextBackend:
        return AttemptContextBackend(self, claim, step_call)


class AttemptContextBackend:
    def __init__(self, backends: ContextBackends, claim: Claim, step_call: StepCall) -> None:
        self._backends = backends
        self._claim = claim
        self._step_call = step_call
        self._effect_results: dict[str, Any] = {}  # by effect name
        self._attempt = asyncio.current_task()
        self._cancel_requested = False  # while an effect was in progress
        self._found_external_work = False  # an effect that may have started external work
        self._open_calls = 0  # calls of the context in progress
        self._token = secrets.token_urlsafe(TOKEN_BYTES) if backends.public_url else None

    @property
    def callback_url(self) -> str | None:
        if self._token is None:
            return None
        return f"{(self._backends.public_url or '').rstrip('/')}{CALLBACK_PATH}{self._token}"

    def charge(self, charge: Charge) -> None:
        self._backends.charge_buffer.add(self._claim, charge)

    async def now(self) -> datetime:
        return await self._await_call(clock.now(self._backends.database))

    async def limit_run(self, limit: Duration) -> None:
        names = ("run", "step", "item", "revision", "fence")
        job = {name: getattr(self._claim, name) for name in names}
        await self._await_call(watchdog.set_run_deadline(self._backends.database, job, _check_duration("limit", limit)))

    async def save_file(self, content: bytes | Path, name: str) -> File:
        if self._backends.files is None:
            raise DefinitionError("this application has no file store: set App(files=...)")
        return await self._await_call(self._backends.files.save(content, name=name))

    async def remember(self, known: Sequence[Fact], language: str, about: str) -> None:
        claim = self._claim
        await self._await_call(
            facts.remember(self._backends.database, self._backends.app, claim.tenant, language, claim.run, known, about)
        )

    async def recall(self, query: str, language: str, limit: int) -> list[Fact]:
        return await self._await_call(
            facts.recall(self._backends.database, self._backends.app, self._claim.tenant, language, query, limit)
        )

    async def profile(self, tenant: str) -> Any:
        found = await self._await_call(profiles.list_profiles(self._backends.database, self._backends.app, tenant))
        return found[0].value if found else None

    async def once(self, name: str, call: Callable[[], Any], reconcile: Callable[[], Any] | None) -> Any:
        known = await self._await_call(self._run_once(self._build_effect(name), call, reconcile))
        self._found_external_work |= reconcile is not None
        self._effect_results[name] = json.loads(known or "null")
        return self._effect_results[name]

    async def external(
        self, external_id: Any, poll: Poll | None, cancel: Cancel | None, limits: ExternalWorkLimits
    ) -> Any:
        claim = self._claim
        found = await self._await_call(
            external_work.get_ended_work(self._backends.database, claim.run, claim.step, claim.item, claim.revision)
        )
        if found is None:
            raise Parked(self._build_park_request(external_id, poll, cancel, limits))
        if found.external_id != self._to_json_value(external_id):
            raise DefinitionError(
                f"{claim.step!r} waits for a different external id than it was parked with: submit within ctx.once, "
                "which returns the same id in every attempt, and move a second piece of external work to its own step"
            )
        if found.state == "succeeded":
            return found.result
        raise ExternalWorkFailed(
            found.error.get("message") or f"the external work ended as {found.state}",
            found.error.get("code") or found.state.upper(),
        )

    @property
    def _only_finds(self) -> bool:
        """Whether the attempt starts nothing new, and only continues until its external work is parked."""
        return self._claim.last or self._cancel_requested

    async def _await_call(self, call: Coroutine[Any, Any, Answer]) -> Answer:
        """Await a call of the context. A last attempt must know its result before it may end."""
        self._claim.looking += 1
        self._open_calls += 1
        try:
            answer = await call
        finally:
            self._open_calls -= 1
        self._claim.looking -= 1
        if self._only_finds:
            self._end_unless_it_asks_on(TURNS)
        return answer

    def _end_unless_it_asks_on(self, turns: int) -> None:
        """Cancel the attempt unless it makes another call of the context within `turns` iterations of the loop."""
        if turns > 0:
            asyncio.get_running_loop().call_soon(self._end_unless_it_asks_on, turns - 1)
        elif self._open_calls == 0 and self._attempt is not None:
            self._attempt.cancel()

    async def _run_once(
        self, effect: external_work.LeasedEffect, call: Callable[[], Any], reconcile: Callable[[], Any] | None
    ) -> str | None:
        """Run the effect unless it has run, and return its result as JSON."""
        token_hash = hashlib.sha256(self._token.encode()).digest() if self._token else None
        state, known = await external_work.begin_effect(
            self._backends.database,
            self._backends.worker,
            effect,
            token_hash,
            TOKEN_LIFETIME,
            findable=reconcile is not None,
        )
        if state == "lost":
            raise self._build_lease_lost()
        if state == "done":
            return known
        if self._only_finds and reconcile is None and (self._found_external_work or self._open_calls > 1):
            # Not needed until the external work that was found is parked.
            await external_work.undo_effect(self._backends.database, effect)
            return None
        try:
            return await self._finish_despite_cancel(
                self._run_and_record(effect, call, reconcile if state == "begun" else None)
            )
        except Stopped:
            if self._claim.last or self._attempt is None:
                raise
            self._attempt.cancel()  # it was cancelled: another attempt runs what this one has not started
            raise asyncio.CancelledError from None

    async def _run_and_record(
        self, effect: external_work.LeasedEffect, call: Callable[[], Any], reconcile: Callable[[], Any] | None
    ) -> str:
        """Call the effect, unless `reconcile` finds that it is done, and record its result."""
        value = await call_maybe_async(reconcile) if reconcile is not None else None
        if value is None:
            value = await self._call_or_undo(effect, call)
        recorded = _encode(value, f"the result of once({effect.name!r}) in {self._claim.step!r}")
        if not await external_work.end_effect(self._backends.database, effect, recorded):
            raise self._build_lease_lost()
        return recorded

    async def _call_or_undo(self, effect: external_work.LeasedEffect, call: Callable[[], Any]) -> Any:
        try:
            if self._only_finds:
                raise Stopped
            return await call_maybe_async(call)
        except SubmissionUnknown:
            raise
        except (RetryLater, GiveUp, Stopped):
            # Nothing happened, or the step says so. After any other error the outcome is unknown.
            await external_work.undo_effect(self._backends.database, effect)
            raise

    async def _finish_despite_cancel(self, work: Coroutine[Any, Any, str]) -> str:
        """Let an effect finish and be recorded although the attempt is cancelled: external work that is not recorded
        cannot be cancelled. The attempt then continues until it parks. Give up after CALL_GRACE seconds."""
        task, attempt = asyncio.ensure_future(_convert_exits(work)), asyncio.current_task()
        cancels, give_up = 0, inf
        while not task.done() and time.monotonic() < give_up:
            try:
                await asyncio.wait([task], timeout=None if give_up == inf else give_up - time.monotonic())
            except asyncio.CancelledError:
                cancels, give_up = cancels + 1, min(give_up, time.monotonic() + CALL_GRACE)
        if not task.done():
            task.cancel()
            raise asyncio.CancelledError
        for _ in range(cancels):
            assert attempt is not None
            attempt.uncancel()
        self._cancel_requested |= cancels > 0
        return task.result()

    def _build_effect(self, name: str) -> external_work.LeasedEffect:
        if not isinstance(name, str) or not 0 < len(name) <= MAX_NAME_LENGTH or "\0" in name:
            raise DefinitionError(f"once({name!r:.80}): use a name of 1 to {MAX_NAME_LENGTH} characters")
        claim = self._claim
        return external_work.LeasedEffect(claim.run, claim.step, claim.item, claim.revision, claim.fence, name)

    def _build_park_request(
        self, external_id: Any, poll: Poll | None, cancel: Cancel | None, limits: ExternalWorkLimits
    ) -> ParkRequest:
        if poll is None and self._token is None:
            raise DefinitionError(
                f"{self._claim.step!r} waits for a callback, but this worker has no URL for callbacks: "
                "pass external(poll=...), or set RETOMA_PUBLIC_URL"
            )
        resources = self._step_call.resources
        return ParkRequest(
            external_id=self._to_json_value(external_id),
            poll=locate_function(poll, "poll", resources),
            cancel=locate_function(cancel, "cancel", resources),
            poll_interval=_check_duration("poll_interval", limits.poll_interval),
            queue_timeout=None
            if limits.queue_timeout is None
            else _check_duration("queue_timeout", limits.queue_timeout),
            run_timeout=None if limits.run_timeout is None else _check_duration("run_timeout", limits.run_timeout),
            total_timeout=_check_duration("total_timeout", limits.total_timeout or self._step_call.step.policy.timeout),
            effect=self._find_submitting_effect(external_id),
        )

    def _find_submitting_effect(self, external_id: Any) -> str | None:
        """Return the effect whose result is or contains this external id, the same object rather than an equal one."""
        plain = self._to_json_value(external_id)
        like = [name for name, result in self._effect_results.items() if _contains_value(result, plain, eq)]
        if not like:  # the id was computed from the result of the only effect
            like = [name for name, result in self._effect_results.items() if result is not None]
            like = like if len(like) == 1 else []
        return next(
            (name for name in like if _contains_value(self._effect_results[name], external_id, is_)),
            like[0] if like else None,
        )

    def _to_json_value(self, external_id: Any) -> Any:
        """Return the external id as the database returns it."""
        return json.loads(_encode(external_id, f"the external id of {self._claim.step!r}"))

    def _build_lease_lost(self) -> LeaseLost:
        claim = self._claim
        of = f" for {claim.item!r}" if claim.item else ""
        return LeaseLost(
            f"this attempt has lost the lease on {claim.step!r}{of} in run {claim.run}; its work is discarded"
        )


def _contains_value(value: Any, external_id: Any, same: Callable[[Any, Any], bool]) -> bool:
    if same(value, external_id):
        return True
    parts = value.values() if isinstance(value, dict) else value if isinstance(value, list) else ()
    return any(_contains_value(part, external_id, same) for part in parts)


async def _convert_exits(work: Coroutine[Any, Any, str]) -> str:
    try:
        return await work
    except (SystemExit, KeyboardInterrupt) as error:  # raised from a task, they would end the worker
        raise RuntimeError(f"a call within once raised {describe_error(error)}") from error


def _check_duration(name: str, value: object) -> timedelta:
    if not isinstance(value, timedelta | int | float) or as_timedelta(value) <= timedelta(0):
        raise DefinitionError(f"external({name}={value!r}): pass a duration above zero, such as minutes(5)")
    return as_timedelta(value)


def _encode(value: Any, description: str) -> str:
    try:
        text = encode_any(value)
    except TypeError as error:
        raise DefinitionError(f"{description} cannot be written as JSON: {error}") from error
    if count_bytes(text) > MAX_RESULT_BYTES:
        raise DefinitionError(f"{description} is over {MAX_RESULT_BYTES:,} bytes of JSON: keep large data in a file")
    return text
