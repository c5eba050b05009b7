"""The backend of `ctx`: records effects (`ctx.once`) and external work (`ctx.external`) of attempts."""

from __future__ import annotations

import asyncio
import hashlib
import json
import secrets
import time
from collections import Counter
from collections.abc import Callable, Coroutine, Sequence
from datetime import datetime, timedelta
from math import inf
from pathlib import Path
from typing import Any, TypeVar

from retoma.define.charge import Charge
from retoma.define.codec import MAX_RESULT_BYTES, count_bytes, encode_any
from retoma.define.context import ChildRerun, ExternalWorkLimits, call_maybe_async
from retoma.define.definition_errors import MAX_NAME_LENGTH
from retoma.define.durations import Duration, as_timedelta
from retoma.define.external_work import (
    Cancel,
    Find,
    ParkJob,
    ParkRequest,
    Poll,
    Submit,
    locate_function,
    parse_provider_method,
)
from retoma.define.file import File
from retoma.define.pipeline import Input, Pipeline
from retoma.engine.claim_protocol import Claim
from retoma.errors import (
    ChildRunFailed,
    DefinitionError,
    ExternalWorkFailed,
    GiveUp,
    LeaseLost,
    RetryLater,
    SubmissionUnknown,
    describe_error,
)
from retoma.identifiers import ClaimKey
from retoma.records import Fact
from retoma.store import clock, effects, external_work, tenant_facts, tenant_profiles, watchdog
from retoma.store.database import Database
from retoma.store.external_work import StartedChild
from retoma.store.tenant_files import grant_files
from retoma.tracing import TRACES
from retoma.worker import child_runs
from retoma.worker.attempt_provider_buffer import AttemptProviderBuffer
from retoma.worker.attempt_span import add_charge
from retoma.worker.chain_provider import ChainProvider, ProviderUsedUp
from retoma.worker.charge_buffer import ChargeBuffer
from retoma.worker.child_runs import Child
from retoma.worker.served_versions import ServedVersions
from retoma.worker.step_call import StepCall

Answer = TypeVar("Answer")
CALLBACK_PATH = "/api/v1/callbacks/"
TOKEN_BYTES = 32
TOKEN_LIFETIME = timedelta(days=30)
SUBMISSION = "external"  # the name of the effect that submits external work
CHILD_REQUEST = ParkRequest(
    poll=f"{child_runs.LOCATION}.poll",
    poll_interval=None,
    queue_timeout=None,
    run_timeout=None,
    total_timeout=timedelta(days=36_500),  # a child may wait for people; its own limits apply
)
CALL_GRACE = 30.0  # seconds for a call in progress when its attempt is cancelled
LOOK_DELAY = 15.0  # seconds between two checks whether what an earlier revision left behind has been ended


class ContextBackends:
    """Creates the context backend of each attempt of a worker."""

    def __init__(self, database: Database, public_url: str | None, served_versions: ServedVersions) -> None:
        self.worker = 0  # set when the worker has registered
        self.database = database
        self.public_url = public_url
        self.served_versions = served_versions
        self.charge_buffer = ChargeBuffer(database)
        self.attempt_providers = AttemptProviderBuffer(database)
        self.effects_in_progress: Counter[ClaimKey] = Counter()  # calls by the jobs that make them

    async def flush(self) -> None:
        """Write what attempts have buffered, before their outcomes."""
        await self.charge_buffer.flush()
        await self.attempt_providers.flush()

    def create(self, claim: Claim, step_call: StepCall) -> AttemptContextBackend:
        return AttemptContextBackend(self, claim, step_call)


class AttemptContextBackend:
    def __init__(self, backends: ContextBackends, claim: Claim, step_call: StepCall) -> None:
        self._backends = backends
        self._claim = claim
        self._step_call = step_call
        self._app = backends.served_versions.get_application(claim.version)
        self._has_external_work = False
        self._token = secrets.token_urlsafe(TOKEN_BYTES) if backends.public_url else None

    @property
    def callback_url(self) -> str | None:
        if self._token is None:
            return None
        return f"{(self._backends.public_url or '').rstrip('/')}{CALLBACK_PATH}{self._token}"

    def charge(self, charge: Charge) -> None:
        self._backends.charge_buffer.add(self._claim, charge)
        if TRACES.is_on:
            add_charge(charge)

    async def now(self) -> datetime:
        return await clock.now(self._backends.database)

    async def limit_run(self, limit: Duration) -> None:
        names = ("run", "step", "item", "revision", "fence")
        job = {name: getattr(self._claim, name) for name in names}
        await watchdog.set_run_deadline(self._backends.database, job, _check_duration("limit", limit))

    async def save_file(self, content: bytes | Path, name: str) -> File:
        if self._app.files is None:
            raise DefinitionError("this application has no file store: set App(files=...)")
        saved = await self._app.files.save(content, name=name)
        await grant_files(self._backends.database, self._claim.tenant, [saved.file])
        return saved

    async def remember(self, known: Sequence[Fact], language: str, about: str) -> None:
        claim = self._claim
        await tenant_facts.remember(
            self._backends.database, self._app.name, claim.tenant, language, claim.run, known, about
        )

    async def recall(self, query: str, language: str, limit: int) -> list[Fact]:
        return await tenant_facts.recall(
            self._backends.database, self._app.name, self._claim.tenant, language, query, limit
        )

    async def profile(self, tenant: str) -> Any:
        found = await tenant_profiles.list_profiles(self._backends.database, self._app.name, tenant)
        return found[0].value if found else None

    async def once(self, name: str, call: Callable[[], Any], find: Find | None, cancel: Cancel | None, key: str) -> Any:
        if isinstance(name, str) and name.partition("#")[0] == SUBMISSION:  # as `orphan_external_work` names them
            raise DefinitionError(f"once({name!r}): this name is reserved for ctx.external, use another one")
        if not isinstance(name, str) or not 0 < len(name) <= MAX_NAME_LENGTH or "\0" in name:
            raise DefinitionError(f"once({name!r:.80}): use a name of 1 to {MAX_NAME_LENGTH} characters")
        functions = self._locate_functions(find, key, cancel)
        if (provider := self._get_provider(functions)) is not None:
            name = f"{name}@{provider.name}"  # another provider does not know what this one did
        value, is_cancelled = await self._run_effect(name, functions, call, find)
        if is_cancelled:
            raise asyncio.CancelledError
        return json.loads(value)

    async def external(
        self,
        submit: Submit,
        find: Find | None,
        poll: Poll | None,
        cancel: Cancel | None,
        key: str,
        limits: ExternalWorkLimits,
    ) -> Any:
        functions = self._locate_functions(find, key, cancel, self._build_park_request(poll, limits))
        ended = await self._get_ended_work()
        if ended is None:
            await self._run_effect(SUBMISSION, functions, submit, find)
            raise ParkJob(SUBMISSION)  # also if the attempt was cancelled: what was submitted must be watched
        if ended.state == "succeeded":
            return ended.result
        raise ExternalWorkFailed(ended.message, ended.code)

    async def run_child(
        self, pipeline: Pipeline | str, inputs: Input, tenant: str, key: str | None, rerun: ChildRerun | None
    ) -> dict[str, Any]:
        children = self._backends.served_versions.child_runs
        child = children.describe(self._claim, pipeline, inputs, tenant, key)
        ended = await self._get_ended_work()
        if ended is not None and ended.state == "succeeded":
            results: dict[str, Any] = ended.result
            return results
        if ended is not None:
            raise ChildRunFailed(ended.message, ended.code)
        functions = effects.EffectFunctions(
            find=f"{child_runs.LOCATION}.find",
            find_key=child.key.to_text(),
            cancel=f"{child_runs.LOCATION}.cancel",
            request=CHILD_REQUEST.to_json(),
        )
        run = await self._start_or_find_child(child, functions)
        if rerun is not None:
            run = await children.rerun_once(child, run, rerun)
        known = await children.get_known_results(child, run)
        if known is not None:
            return known
        await self._run_effect(SUBMISSION, functions, lambda: children.resume(child, run), children.find)
        raise ParkJob(SUBMISSION)

    async def _start_or_find_child(self, child: Child, functions: effects.EffectFunctions) -> StartedChild:
        """Start the child and end the function, or return the run that has its key already."""
        children, worker = self._backends.served_versions.child_runs, self._backends.worker
        found = await children.guess_run(child)
        while found.run is None:
            start = children.start(child, found.unused_key, worker, SUBMISSION, functions)
            state, is_cancelled = await self._finish_despite_cancel(start)
            if state == "lost":
                raise self._build_lease_lost()
            if state == "started":
                raise ParkJob(SUBMISSION)
            if is_cancelled:
                raise asyncio.CancelledError
            found = await children.find_run(child)
        return found.run

    async def _get_ended_work(self) -> external_work.EndedWork | None:
        """Return the outcome of the job's external work, once it has one. A job has one piece of it."""
        claim = self._claim
        if self._has_external_work:
            raise DefinitionError(
                f"{claim.step!r} waits for external work twice: move the second piece of external work to its own step"
            )
        self._has_external_work = True
        if claim.is_first_attempt:
            return None
        return await external_work.get_ended_work(
            self._backends.database, claim.run, claim.step, claim.item, claim.revision
        )

    async def _run_effect(
        self, name: str, functions: effects.EffectFunctions, call: Callable[[], Any], find: Find | None
    ) -> tuple[str, bool]:
        """Run the effect unless it has run. Return its value as JSON, and whether the attempt was cancelled."""
        claim = self._claim
        effect = effects.LeasedEffect(claim.run, claim.step, claim.item, claim.revision, claim.fence, name)
        token_hash = hashlib.sha256(self._token.encode()).digest() if self._token else None
        state, known = await effects.begin_effect(
            self._backends.database, self._backends.worker, effect, functions, token_hash, TOKEN_LIFETIME
        )
        if state == "lost":
            raise self._build_lease_lost()
        if state == "looked_for":
            raise RetryLater(
                LOOK_DELAY, f"a worker still ends what an earlier revision left of {_describe_effect(effect.name)}"
            )
        if state == "done":
            return known or "null", False
        search = find if state == "begun" else None
        return await self._finish_despite_cancel(self._call_and_record(effect, functions, call, search))

    async def _call_and_record(
        self,
        effect: effects.LeasedEffect,
        functions: effects.EffectFunctions,
        call: Callable[[], Any],
        find: Find | None,
    ) -> str:
        """Call the effect, unless `find` says that it is done, and record its value."""
        value = await call_maybe_async(lambda: find(functions.find_key or "")) if find is not None else None
        if value is None:
            provider = self._get_provider(functions)
            if provider is not None and provider.finds_only and find is not None:
                await effects.undo_effect(self._backends.database, effect)
                raise ProviderUsedUp(provider.name)
            value = await self._call_or_undo(effect, functions, call)
        recorded = _encode(value, f"the result of {_describe_effect(effect.name)} in {self._claim.step!r}")
        if not await effects.end_effect(self._backends.database, effect, recorded):
            raise self._build_lease_lost()
        return recorded

    async def _call_or_undo(
        self, effect: effects.LeasedEffect, functions: effects.EffectFunctions, call: Callable[[], Any]
    ) -> Any:
        try:
            return await call_maybe_async(call)
        except SubmissionUnknown:
            raise
        except Exception as error:
            # After these requests nothing has happened. After any other error the outcome is unknown, which matters
            # only if something can be found or cancelled: otherwise the error is all that anyone could look at.
            if isinstance(error, RetryLater | GiveUp) or functions == effects.EffectFunctions():
                await effects.undo_effect(self._backends.database, effect)
            raise

    async def _finish_despite_cancel(self, work: Coroutine[Any, Any, str]) -> tuple[str, bool]:
        """Let an effect finish and be recorded although the attempt is cancelled: what is not recorded must be looked
        for. Give up after CALL_GRACE seconds."""
        task, give_up = asyncio.ensure_future(_convert_exits(work)), inf
        in_progress, key = self._backends.effects_in_progress, self._claim.key
        in_progress[key] += 1
        task.add_done_callback(lambda _: _decrement(in_progress, key))
        while not task.done() and time.monotonic() < give_up:
            try:
                await asyncio.wait([task], timeout=None if give_up == inf else give_up - time.monotonic())
            except asyncio.CancelledError:
                give_up = min(give_up, time.monotonic() + CALL_GRACE)
        if not task.done():
            task.cancel()
            raise asyncio.CancelledError
        return task.result(), give_up < inf

    def _locate_functions(
        self, find: Find | None, key: str, cancel: Cancel | None, request: ParkRequest | None = None
    ) -> effects.EffectFunctions:
        if not isinstance(key, str) or not key or "\0" in key:
            raise DefinitionError(f"key={key!r:.80}: pass a string that identifies the call at the provider")
        resources = self._step_call.located_resources
        return effects.EffectFunctions(
            find=locate_function(find, "find", resources),
            find_key=None if find is None else key,
            cancel=locate_function(cancel, "cancel", resources),
            request=None if request is None else request.to_json(),
        )

    def _build_park_request(self, poll: Poll | None, limits: ExternalWorkLimits) -> ParkRequest:
        if poll is None and self._token is None:
            raise DefinitionError(
                f"{self._claim.step!r} waits for a callback, but this worker has no URL for callbacks: "
                "pass external(poll=...), or set RETOMA_PUBLIC_URL"
            )
        return ParkRequest(
            poll=locate_function(poll, "poll", self._step_call.located_resources),
            poll_interval=_check_duration("poll_interval", limits.poll_interval),
            queue_timeout=None
            if limits.queue_timeout is None
            else _check_duration("queue_timeout", limits.queue_timeout),
            run_timeout=None if limits.run_timeout is None else _check_duration("run_timeout", limits.run_timeout),
            total_timeout=_check_duration("total_timeout", limits.total_timeout or self._step_call.step.policy.timeout),
            provider=None if self._step_call.provider is None else self._step_call.provider.name,
        )

    def _get_provider(self, functions: effects.EffectFunctions) -> ChainProvider | None:
        """Return the attempt's provider of a chain if the effect belongs to it: external work, or its own functions."""
        locations = (functions.find, functions.cancel)
        if functions.request is None and not any(each and parse_provider_method(each) for each in locations):
            return None
        return self._step_call.provider

    def _build_lease_lost(self) -> LeaseLost:
        claim = self._claim
        of = f" for {claim.item!r}" if claim.item else ""
        return LeaseLost(
            f"this attempt has lost the lease on {claim.step!r}{of} in run {claim.run}; its work is discarded"
        )


def _describe_effect(name: str) -> str:
    return "submit" if name == SUBMISSION else f"once({name!r})"


def _decrement(counts: Counter[ClaimKey], key: ClaimKey) -> None:
    counts[key] -= 1
    if not counts[key]:
        del counts[key]


async def _convert_exits(work: Coroutine[Any, Any, str]) -> str:
    try:
        return await work
    except (SystemExit, KeyboardInterrupt) as error:  # raised from a task, they would end the worker
        raise RuntimeError(f"a call within once or external raised {describe_error(error)}") from error


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
