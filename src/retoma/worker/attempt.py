"""One attempt: call the step's function within its time, and say how it ended."""

from __future__ import annotations

import asyncio
import json
import random
import time
import traceback
from collections.abc import Callable
from dataclasses import replace
from datetime import timedelta
from typing import Any, Protocol

from retoma.define.codec import sentence_of
from retoma.define.context import Context
from retoma.define.items import NOT_WANTED
from retoma.define.outside import Parked, Stopped
from retoma.define.retry import LONGEST_DELAY
from retoma.engine.exchange import Claim, Result, SetBack, Setback
from retoma.errors import GiveUp, NeedsReview, ProviderDown, ProviderRefuses, RateLimited, RetryLater
from retoma.masking import masked, without_folders
from retoma.records import GENERIC_CODE
from retoma.tracebacks import release_frames
from retoma.worker.plan import NeedMissing, Plan

LONGEST_MESSAGE = 2_000
LONGEST_STACK = 8_000
LONGEST_CODE = 100
UNMASKED_ROOM = (
    50  # a child process, which cannot mask, says so many times as much, so that its parent masks and then cuts
)
OUT_OF_MEMORY = "OUT_OF_MEMORY"
WAITS = "ASKED_TO_WAIT"
RATE_LIMITED = "RATE_LIMITED"
PROVIDER_DOWN = "PROVIDER_DOWN"
PROVIDER_REFUSES = "PROVIDER_REFUSES"
LONGEST_SPENT_MS = 2**31 - 1  # as the column holds it: 24 days


class Caller(Protocol):
    """Calls a plain function where it does not hold up the event loop."""

    async def call(self, function: Callable[[], Any]) -> Any: ...


async def attempt(
    plan: Plan, claim: Claim, context: Context | None, threads: Caller, *, room: int = 1
) -> Result | SetBack:
    """Run one attempt to its end, however long it takes. Raises only CancelledError.

    What is told of an error may be `room` times as long as what is recorded of one.
    """
    began = time.monotonic()
    try:
        data = plan.data(claim)
        if not plan.step.wanted(data):
            return SetBack(claim, "skipped", code=NOT_WANTED)
        if sentence := plan.too_many_failed(data):
            return failed(claim, "TOO_MANY_FAILED", sentence, room)
        function, machinery = plan.step.function, plan.machinery(context)
        if plan.is_async:
            value = await function(**data, **machinery)
        else:
            value = await threads.call(lambda: function(**data, **machinery))
        return Result(claim, plan.output(value), plan.items(value))
    except BaseException as error:
        if isinstance(error, asyncio.CancelledError) and _is_cancelled() and not _has_passed(claim):
            raise
        try:
            return _unsuccessful(plan, claim, error, time.monotonic() - began, room)
        finally:
            release_frames(error)


def _unsuccessful(plan: Plan, claim: Claim, error: BaseException, seconds: float, room: int) -> SetBack:
    """Say how an attempt ended whose function raised this."""
    match error:
        case NeedMissing():
            return SetBack(claim, "skipped", code="NEED_FAILED")
        case RetryLater() if _has_passed(claim):
            return SetBack(claim, "stopped")
        case RetryLater():
            code = _wait_code(error)
            # Beyond the year 9999 Python could not read when the job is ready.
            delay = min(error.delay, LONGEST_DELAY)
            return SetBack(claim, "wait", delay=delay, code=code, error=told(code, error, room))
        case NeedsReview():
            return SetBack(claim, "review", code=clean(error.code)[:LONGEST_CODE], error=_reason(plan, error, room))
        case Parked():
            return SetBack(claim, "parked", error=error.handover.to_json())
        case Stopped():
            return SetBack(claim, "stopped")
        case _:
            return _setback(plan, claim, _explained(plan, error), seconds, room)


def _reason(plan: Plan, asked: NeedsReview, room: int) -> str:
    """Why a person is asked, with the result that the step would give, if it has one."""
    reason = {"code": clean(asked.code)[:LONGEST_CODE], "message": clean(_said(asked))[: room * LONGEST_MESSAGE]}
    if asked.value is None:
        return json.dumps(reason)
    return f'{json.dumps(reason)[:-1]}, "value": {plan.output(asked.value)}}}'


def _wait_code(request: RetryLater) -> str:
    """As the functions of pools know it."""
    match request:
        case RateLimited():
            return RATE_LIMITED
        case ProviderDown():
            return PROVIDER_DOWN
        case ProviderRefuses():
            return PROVIDER_REFUSES
        case _:
            return WAITS


def _is_cancelled() -> bool:
    """Whether it is we who cancelled, and not something within the step."""
    task = asyncio.current_task()
    return task is not None and task.cancelling() > 0


def timed_out(plan: Plan, claim: Claim, seconds: float, advice: str) -> SetBack:
    """How an attempt ends that outlived its timeout."""
    name = plan.step.name
    limit = plan.step.policy.work_limit
    whose = "its timeout" if limit is None or seconds == plan.timeout else f"what was left of {_work_limit(limit)}"
    error = TimedOut(f"{name!r} was still running after {seconds:g} s, {whose}{advice}")
    return _setback(plan, claim, error, seconds)


def crashed(plan: Plan, claim: Claim, error: BaseException, seconds: float) -> SetBack:
    """How an attempt ends whose child process died, or could not be started."""
    try:
        return _setback(plan, claim, error, seconds)
    finally:
        release_frames(error)


class Crashed(Exception):
    """The child process that ran an isolated step died."""

    def __init__(self, sentence: str, code: str = "CRASHED") -> None:
        super().__init__(sentence)
        self.code = code


class OutOfMemory(MemoryError):
    """An isolated step met the limit of its memory."""


class TimedOut(TimeoutError):
    """Ours, and not one that the step's function met by itself."""

    code = "TIMEOUT"


def _setback(plan: Plan, claim: Claim, error: BaseException, seconds: float, room: int = 1) -> SetBack:
    if _has_passed(claim):
        return SetBack(claim, "stopped")
    code = _code(error)
    policy, failures, most = plan.step.policy, *_failures(plan, claim)
    if isinstance(error, GiveUp) or failures > most or not policy.retry.covers(error):
        return _ended(claim, code, error, room)
    delay = policy.retry.delay(failures, random.random())  # noqa: S311
    spent = timedelta(milliseconds=claim.spent_ms) + timedelta(seconds=seconds)
    if policy.work_limit is not None:
        if spent + timedelta(milliseconds=claim.earlier.milliseconds if claim.earlier else 0) >= policy.work_limit:
            sentence = f"{_said(error)}; {_work_limit(policy.work_limit)} is used up"
            return _ended(claim, TimedOut.code, error, room, sentence)
    else:
        spent += delay
    if policy.total is not None and spent > policy.total:
        sentence = f"another try would pass the {policy.total} that all tries may take; {_said(error)}"
        return _ended(claim, "TOTAL_TIMEOUT", error, room, sentence)
    return SetBack(
        claim,
        "crashed" if isinstance(error, Crashed) else "retry",
        delay=delay,
        spent_ms=min(LONGEST_SPENT_MS, int(spent.total_seconds() * 1000)),
        code=code,
        error=told(code, error, room),
    )


def _failures(plan: Plan, claim: Claim) -> tuple[int, int]:
    """Return how many attempts at the item have failed by now, and how many may be tried again."""
    most = plan.step.policy.retry.retries
    if claim.earlier is None:
        return claim.failures + 1, most
    allowed = claim.earlier.most_retries
    return claim.earlier.failures + claim.failures + 1, most if allowed is None else min(most, allowed)


def _work_limit(limit: timedelta) -> str:
    return f"the {limit.total_seconds():g} s that all work on this item may take"


def _has_passed(claim: Claim) -> bool:
    """Whether a last attempt knows all that it began outside, and came to nothing that could be ended there."""
    return claim.last and claim.looking == 0


def _ended(claim: Claim, code: str, error: BaseException, room: int, sentence: str | None = None) -> SetBack:
    """No try is left. A crash is told apart, because the third of a job quarantines it."""
    outcome: Setback = "crashed_for_good" if isinstance(error, Crashed) else "failed"
    return SetBack(claim, outcome, code=code, error=told(code, sentence or error, room))


def failed(claim: Claim, code: str, error: BaseException | str, room: int = 1) -> SetBack:
    """How an attempt ends after which no other is made."""
    setback = SetBack(claim, "failed", code=code, error=told(code, error, room))
    if isinstance(error, BaseException):
        release_frames(error)
    return setback


def _explained(plan: Plan, error: BaseException) -> BaseException:
    """The same error, or one that says more: Python has no words for a lack of memory."""
    isolation = plan.step.policy.isolation
    if isolation is None or not isinstance(error, MemoryError):
        return error
    traceback.clear_frames(error.__traceback__)  # what the step held, so that there is memory to tell of it
    explained = OutOfMemory(
        f"{plan.step.name!r} needed more than the {isolation.memory:,} bytes of memory that it may use: "
        "work on smaller parts, or allow more with Isolation(memory=...)"
    )
    explained.__cause__ = error
    return explained


def _code(error: BaseException) -> str:
    """An error may carry a code of its own, for people and programs."""
    if isinstance(error, MemoryError):
        return OUT_OF_MEMORY
    try:
        code = getattr(error, "code", None)
        return clean(code)[:LONGEST_CODE] if isinstance(code, str) else GENERIC_CODE
    except BaseException:  # noqa: BLE001  (it may be a property of the application's)
        return GENERIC_CODE


def told(code: str, error: BaseException | str, room: int = 1) -> str:
    """What the event says of a failure, as JSON."""
    if isinstance(error, str):
        return json.dumps({"code": code, "message": clean(error)[: room * LONGEST_MESSAGE]})
    return json.dumps(
        {
            "code": code,
            "type": type(error).__name__,
            "message": clean(_said(error))[: room * LONGEST_MESSAGE],
            "stack": clean(_stack(error))[-room * LONGEST_STACK :],
        }
    )


def mask_outcome(outcome: SetBack) -> SetBack:
    """Return what a child process says of its attempt as it is recorded: the child has no secrets to know them by."""
    if outcome.error is None:
        return outcome
    said = json.loads(outcome.error)
    cuts = {"message": slice(LONGEST_MESSAGE), "stack": slice(-LONGEST_STACK, None), "code": slice(LONGEST_CODE)}
    kept = {name: clean(said[name])[cut] for name, cut in cuts.items() if isinstance(said.get(name), str)}
    return replace(outcome, code=outcome.code and clean(outcome.code)[:LONGEST_CODE], error=json.dumps(said | kept))


def _stack(error: BaseException) -> str:
    try:
        lines = traceback.format_exception(error)
    except BaseException:  # noqa: BLE001  (it reads attributes of the application's error)
        lines = traceback.format_tb(error.__traceback__)
    return "".join(lines)


def _said(error: BaseException) -> str:
    try:
        return sentence_of(error)
    except BaseException:  # noqa: BLE001  (an error of a step may fail even at saying what it is)
        return f"a {type(error).__name__} that cannot say what it is"


def clean(text: str) -> str:
    """Without secrets and the server's folders; and PostgreSQL's text knows no NUL, JSON no lone surrogate."""
    return without_folders(masked(text)).replace("\0", "\N{REPLACEMENT CHARACTER}").encode(errors="replace").decode()
