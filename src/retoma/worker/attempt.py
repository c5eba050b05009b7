"""One attempt: call the step's function and build its result or outcome."""

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

from retoma.define.codec import describe_validation_error
from retoma.define.context import Context
from retoma.define.external_work import Parked, Stopped
from retoma.define.items import NOT_WANTED
from retoma.define.retry import MAX_DELAY
from retoma.engine.claim_protocol import AttemptOutcome, Claim, OutcomeKind, Result
from retoma.errors import (
    GiveUp,
    NeedsReview,
    ProviderDown,
    ProviderRejected,
    RateLimited,
    RetryLater,
    UnreadableError,
    describe_error,
    get_class_name,
    make_readable,
)
from retoma.masking import hide_folders, mask_secrets
from retoma.records import GENERIC_CODE
from retoma.tracebacks import release_frames
from retoma.worker.step_call import DependencyMissing, StepCall

MAX_MESSAGE_LENGTH = 2_000
MAX_STACK_LENGTH = 8_000
MAX_CODE_LENGTH = 100
# A child process cannot mask secrets, so it sends longer texts: the parent masks them before it truncates them.
UNMASKED_LENGTH_FACTOR = 50
OUT_OF_MEMORY = "OUT_OF_MEMORY"
ASKED_TO_WAIT = "RETRY_LATER"
RATE_LIMITED = "RATE_LIMITED"
PROVIDER_DOWN = "PROVIDER_DOWN"
PROVIDER_REJECTED = "PROVIDER_REJECTED"
MAX_SPENT_MS = 2**31 - 1  # the largest value of the column: 24 days


class SyncCaller(Protocol):
    """Calls a `def` function without blocking the event loop."""

    async def call(self, function: Callable[[], Any]) -> Any: ...


async def run_attempt(
    step_call: StepCall, claim: Claim, context: Context | None, threads: SyncCaller, *, length_factor: int = 1
) -> Result | AttemptOutcome:
    """Run one attempt to its end, without a time limit. Raise only CancelledError.

    Error texts may be `length_factor` times as long as the texts that are recorded.
    """
    began = time.monotonic()
    try:
        data = step_call.build_arguments(claim)
        if not step_call.step.should_run(data):
            return AttemptOutcome(claim, "skipped", code=NOT_WANTED)
        if sentence := step_call.explain_too_many_failed(data):
            return build_failure_outcome(claim, "TOO_MANY_FAILED", sentence, length_factor)
        function, machinery = step_call.step.function, step_call.build_resources(context)
        if step_call.is_async:
            value = await function(**data, **machinery)
        else:
            value = await threads.call(lambda: function(**data, **machinery))
        return Result(claim, step_call.encode_result(value), step_call.encode_items(value))
    except BaseException as error:
        # Not isinstance: it reads `__class__`, which the error may have replaced.
        if issubclass(type(error), asyncio.CancelledError) and _is_cancelled() and not _has_passed(claim):
            raise
        seconds = time.monotonic() - began
        try:
            return _classify_error(step_call, claim, make_readable(error), seconds, length_factor)
        except BaseException as unusable:  # noqa: BLE001  (application code, as an attribute of the error)
            return build_crash_outcome(step_call, claim, unusable, seconds, length_factor)
        finally:
            release_frames(error)


def _classify_error(
    step_call: StepCall, claim: Claim, error: BaseException, seconds: float, length_factor: int
) -> AttemptOutcome:
    """Return the outcome of an attempt that raised `error`."""
    match error:
        case DependencyMissing():
            return AttemptOutcome(claim, "skipped", code="DEPENDENCY_FAILED")
        case RetryLater() if _has_passed(claim):
            return AttemptOutcome(claim, "stopped")
        case RetryLater():
            code = _get_wait_code(error)
            # Python cannot represent a time beyond the year 9999.
            delay = min(error.delay, MAX_DELAY)
            return AttemptOutcome(claim, "wait", delay=delay, code=code, error=format_error(code, error, length_factor))
        case NeedsReview():
            return AttemptOutcome(
                claim,
                "review",
                code=clean_text(error.code)[:MAX_CODE_LENGTH],
                error=_format_review_reason(step_call, error, length_factor),
            )
        case Parked():
            return AttemptOutcome(claim, "parked", error=error.request.to_json())
        case Stopped():
            return AttemptOutcome(claim, "stopped")
        case _:
            return _retry_or_fail(step_call, claim, _explain_memory_error(step_call, error), seconds, length_factor)


def _format_review_reason(step_call: StepCall, request: NeedsReview, length_factor: int) -> str:
    """Return why a person is asked as JSON, with the result that the step proposes, if any."""
    reason = {
        "code": clean_text(request.code)[:MAX_CODE_LENGTH],
        "message": clean_text(_describe_error(request))[: length_factor * MAX_MESSAGE_LENGTH],
    }
    if request.value is None:
        return json.dumps(reason)
    return f'{json.dumps(reason)[:-1]}, "value": {step_call.encode_result(request.value)}}}'


def _get_wait_code(request: RetryLater) -> str:
    """Return the code by which the SQL functions of pools know this kind of wait."""
    match request:
        case RateLimited():
            return RATE_LIMITED
        case ProviderDown():
            return PROVIDER_DOWN
        case ProviderRejected():
            return PROVIDER_REJECTED
        case _:
            return ASKED_TO_WAIT


def _is_cancelled() -> bool:
    """Return whether the worker cancelled the attempt, and not code within the step."""
    task = asyncio.current_task()
    return task is not None and task.cancelling() > 0


def build_timeout_outcome(step_call: StepCall, claim: Claim, seconds: float, advice: str) -> AttemptOutcome:
    """Return the outcome of an attempt that exceeded its time limit."""
    name = step_call.step.name
    limit = step_call.step.policy.work_limit
    exceeded = (
        "its timeout" if limit is None or seconds == step_call.timeout else f"the rest of {_describe_work_limit(limit)}"
    )
    error = TimedOut(f"{name!r} was still running after {seconds:g} s, {exceeded}{advice}")
    return _retry_or_fail(step_call, claim, error, seconds)


def build_crash_outcome(
    step_call: StepCall, claim: Claim, error: BaseException, seconds: float, length_factor: int = 1
) -> AttemptOutcome:
    """Return the outcome of an attempt whose child process died or could not be started. Never raises."""
    try:
        return _retry_or_fail(step_call, claim, make_readable(error), seconds, length_factor)
    except BaseException:  # noqa: BLE001  (application code, as an attribute of the error)
        return _fail_for_good(claim, GENERIC_CODE, UnreadableError(describe_error(error)), length_factor)
    finally:
        release_frames(error)


class Crashed(Exception):
    """The child process that ran an isolated step died."""

    def __init__(self, sentence: str, code: str = "CRASHED") -> None:
        super().__init__(sentence)
        self.code = code


class OutOfMemory(MemoryError):
    """An isolated step reached its memory limit."""


class TimedOut(TimeoutError):
    """The attempt exceeded its time limit. Other TimeoutErrors come from the step's own code."""

    code = "TIMEOUT"


def _retry_or_fail(
    step_call: StepCall, claim: Claim, error: BaseException, seconds: float, length_factor: int = 1
) -> AttemptOutcome:
    if _has_passed(claim):
        return AttemptOutcome(claim, "stopped")
    code = _get_error_code(error)
    policy, failures, most = step_call.step.policy, *_count_failures(step_call, claim)
    if isinstance(error, GiveUp) or failures > most or not policy.retry.covers(error):
        return _fail_for_good(claim, code, error, length_factor)
    delay = policy.retry.delay(failures, random.random())  # noqa: S311
    spent = timedelta(milliseconds=claim.spent_ms) + timedelta(seconds=seconds)
    if policy.work_limit is not None:
        if spent + timedelta(milliseconds=claim.earlier.milliseconds if claim.earlier else 0) >= policy.work_limit:
            sentence = f"{_describe_error(error)}; {_describe_work_limit(policy.work_limit)} are used up"
            return _fail_for_good(claim, TimedOut.code, error, length_factor, sentence)
    else:
        spent += delay
    if policy.total_timeout is not None and spent > policy.total_timeout:
        sentence = (
            f"another attempt would exceed total_timeout={policy.total_timeout}, the limit for all attempts together; "
            f"{_describe_error(error)}"
        )
        return _fail_for_good(claim, "TOTAL_TIMEOUT", error, length_factor, sentence)
    return AttemptOutcome(
        claim,
        "crashed" if isinstance(error, Crashed) else "retry",
        delay=delay,
        spent_ms=min(MAX_SPENT_MS, int(spent.total_seconds() * 1000)),
        code=code,
        error=format_error(code, error, length_factor),
    )


def _count_failures(step_call: StepCall, claim: Claim) -> tuple[int, int]:
    """Return the number of failed attempts at the item, this one included, and the number of retries allowed."""
    most = step_call.step.policy.retry.retries
    if claim.earlier is None:
        return claim.failures + 1, most
    allowed = claim.earlier.most_retries
    return claim.earlier.failures + claim.failures + 1, most if allowed is None else min(most, allowed)


def _describe_work_limit(limit: timedelta) -> str:
    return f"the {limit.total_seconds():g} s allowed for all work on this item"


def _has_passed(claim: Claim) -> bool:
    """Return whether a last attempt has no call in progress that could still find external work to cancel."""
    return claim.last and claim.looking == 0


def _fail_for_good(
    claim: Claim, code: str, error: BaseException, length_factor: int, sentence: str | None = None
) -> AttemptOutcome:
    """Return the outcome without a retry. Crashes have their own kind, because the third of a job quarantines it."""
    outcome: OutcomeKind = "crashed_for_good" if isinstance(error, Crashed) else "failed"
    return AttemptOutcome(claim, outcome, code=code, error=format_error(code, sentence or error, length_factor))


def build_failure_outcome(
    claim: Claim, code: str, error: BaseException | str, length_factor: int = 1
) -> AttemptOutcome:
    """Return the outcome of an attempt that failed and must not be retried."""
    readable = make_readable(error) if isinstance(error, BaseException) else error
    outcome = AttemptOutcome(claim, "failed", code=code, error=format_error(code, readable, length_factor))
    if isinstance(error, BaseException):
        release_frames(error)
    return outcome


def _explain_memory_error(step_call: StepCall, error: BaseException) -> BaseException:
    """Return the same error, or for a MemoryError of an isolated step one with a message: Python's has none."""
    isolation = step_call.step.policy.isolation
    if isolation is None or not isinstance(error, MemoryError):
        return error
    traceback.clear_frames(error.__traceback__)  # free the memory of the step, to have enough for the message
    explained = OutOfMemory(
        f"{step_call.step.name!r} needed more than its {isolation.memory:,} bytes of memory: process smaller parts, or "
        "raise the limit with Isolation(memory=...)"
    )
    explained.__cause__ = error
    return explained


def _get_error_code(error: BaseException) -> str:
    """Return the error's own `code`, if it has one."""
    if isinstance(error, MemoryError):
        return OUT_OF_MEMORY
    try:
        code = getattr(error, "code", None)
        return clean_text(code)[:MAX_CODE_LENGTH] if isinstance(code, str) else GENERIC_CODE
    except BaseException:  # noqa: BLE001  (`code` may be a property of the application)
        return GENERIC_CODE


def format_error(code: str, error: BaseException | str, length_factor: int = 1) -> str:
    """Return a failure as JSON, as the event stores it."""
    if isinstance(error, str):
        return json.dumps({"code": code, "message": clean_text(error)[: length_factor * MAX_MESSAGE_LENGTH]})
    return json.dumps(
        {
            "code": code,
            "type": get_class_name(error),
            "message": clean_text(_describe_error(error))[: length_factor * MAX_MESSAGE_LENGTH],
            "stack": clean_text(_format_stack(error))[-length_factor * MAX_STACK_LENGTH :],
        }
    )


def mask_outcome(outcome: AttemptOutcome) -> AttemptOutcome:
    """Mask and truncate the texts of an outcome from a child process, which does not know the secrets."""
    if outcome.error is None:
        return outcome
    error = json.loads(outcome.error)
    cuts = {
        "message": slice(MAX_MESSAGE_LENGTH),
        "stack": slice(-MAX_STACK_LENGTH, None),
        "code": slice(MAX_CODE_LENGTH),
    }
    masked = {name: clean_text(error[name])[cut] for name, cut in cuts.items() if isinstance(error.get(name), str)}
    return replace(
        outcome, code=outcome.code and clean_text(outcome.code)[:MAX_CODE_LENGTH], error=json.dumps(error | masked)
    )


def _format_stack(error: BaseException) -> str:
    try:
        lines = traceback.format_exception(error)
    except BaseException:  # noqa: BLE001  (it reads attributes of an application's error)
        lines = traceback.format_tb(error.__traceback__)
    return "".join(lines)


def _describe_error(error: BaseException) -> str:
    try:
        return "".join([describe_validation_error(error)])
    except BaseException:  # noqa: BLE001  (`__str__` of a step's error may fail, too)
        return f"a {get_class_name(error)} that has no readable message"


def clean_text(text: str) -> str:
    """Mask secrets and the server's folders, and replace NUL and lone surrogates, which PostgreSQL cannot store."""
    return hide_folders(mask_secrets(text)).replace("\0", "\N{REPLACEMENT CHARACTER}").encode(errors="replace").decode()
