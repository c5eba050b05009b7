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

from retoma.define.codec import describe_validation_error
from retoma.define.context import Context
from retoma.define.external_work import Parked, Stopped
from retoma.define.items import NOT_WANTED
from retoma.define.retry import MAX_DELAY
from retoma.engine.claim_protocol import AttemptOutcome, Claim, OutcomeKind, Result
from retoma.errors import GiveUp, NeedsReview, ProviderDown, ProviderRejected, RateLimited, RetryLater
from retoma.masking import hide_folders, mask_secrets
from retoma.records import GENERIC_CODE
from retoma.tracebacks import release_frames
from retoma.worker.step_call import DependencyMissing, StepCall

MAX_MESSAGE_LENGTH = 2_000
MAX_STACK_LENGTH = 8_000
MAX_CODE_LENGTH = 100
UNMASKED_LENGTH_FACTOR = (
    50  # a child process, which cannot mask, says so many times as much, so that its parent masks and then cuts
)
OUT_OF_MEMORY = "OUT_OF_MEMORY"
ASKED_TO_WAIT = "RETRY_LATER"
RATE_LIMITED = "RATE_LIMITED"
PROVIDER_DOWN = "PROVIDER_DOWN"
PROVIDER_REJECTED = "PROVIDER_REJECTED"
MAX_SPENT_MS = 2**31 - 1  # as the column holds it: 24 days


class SyncCaller(Protocol):
    """Calls a plain function where it does not hold up the event loop."""

    async def call(self, function: Callable[[], Any]) -> Any: ...


async def run_attempt(
    step_call: StepCall, claim: Claim, context: Context | None, threads: SyncCaller, *, length_factor: int = 1
) -> Result | AttemptOutcome:
    """Run one attempt to its end, however long it takes. Raises only CancelledError.

    What is told of an error may be `room` times as long as what is recorded of one.
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
        if isinstance(error, asyncio.CancelledError) and _is_cancelled() and not _has_passed(claim):
            raise
        try:
            return _classify_error(step_call, claim, error, time.monotonic() - began, length_factor)
        finally:
            release_frames(error)


def _classify_error(
    step_call: StepCall, claim: Claim, error: BaseException, seconds: float, length_factor: int
) -> AttemptOutcome:
    """Say how an attempt ended whose function raised this."""
    match error:
        case DependencyMissing():
            return AttemptOutcome(claim, "skipped", code="DEPENDENCY_FAILED")
        case RetryLater() if _has_passed(claim):
            return AttemptOutcome(claim, "stopped")
        case RetryLater():
            code = _get_wait_code(error)
            # Beyond the year 9999 Python could not read when the job is ready.
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
    """Why a person is asked, with the result that the step would give, if it has one."""
    reason = {
        "code": clean_text(request.code)[:MAX_CODE_LENGTH],
        "message": clean_text(_describe_error(request))[: length_factor * MAX_MESSAGE_LENGTH],
    }
    if request.value is None:
        return json.dumps(reason)
    return f'{json.dumps(reason)[:-1]}, "value": {step_call.encode_result(request.value)}}}'


def _get_wait_code(request: RetryLater) -> str:
    """As the functions of pools know it."""
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
    """Whether it is we who cancelled, and not something within the step."""
    task = asyncio.current_task()
    return task is not None and task.cancelling() > 0


def build_timeout_outcome(step_call: StepCall, claim: Claim, seconds: float, advice: str) -> AttemptOutcome:
    """How an attempt ends that outlived its timeout."""
    name = step_call.step.name
    limit = step_call.step.policy.work_limit
    whose = (
        "its timeout"
        if limit is None or seconds == step_call.timeout
        else f"what was left of {_describe_work_limit(limit)}"
    )
    error = TimedOut(f"{name!r} was still running after {seconds:g} s, {whose}{advice}")
    return _retry_or_fail(step_call, claim, error, seconds)


def build_crash_outcome(step_call: StepCall, claim: Claim, error: BaseException, seconds: float) -> AttemptOutcome:
    """How an attempt ends whose child process died, or could not be started."""
    try:
        return _retry_or_fail(step_call, claim, error, seconds)
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
            sentence = f"{_describe_error(error)}; {_describe_work_limit(policy.work_limit)} is used up"
            return _fail_for_good(claim, TimedOut.code, error, length_factor, sentence)
    else:
        spent += delay
    if policy.total_timeout is not None and spent > policy.total_timeout:
        sentence = (
            f"another try would pass the {policy.total_timeout} that all tries may take; {_describe_error(error)}"
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
    """Return how many attempts at the item have failed by now, and how many may be tried again."""
    most = step_call.step.policy.retry.retries
    if claim.earlier is None:
        return claim.failures + 1, most
    allowed = claim.earlier.most_retries
    return claim.earlier.failures + claim.failures + 1, most if allowed is None else min(most, allowed)


def _describe_work_limit(limit: timedelta) -> str:
    return f"the {limit.total_seconds():g} s that all work on this item may take"


def _has_passed(claim: Claim) -> bool:
    """Whether a last attempt knows all that it began outside, and came to nothing that could be ended there."""
    return claim.last and claim.looking == 0


def _fail_for_good(
    claim: Claim, code: str, error: BaseException, length_factor: int, sentence: str | None = None
) -> AttemptOutcome:
    """No try is left. A crash is told apart, because the third of a job quarantines it."""
    outcome: OutcomeKind = "crashed_for_good" if isinstance(error, Crashed) else "failed"
    return AttemptOutcome(claim, outcome, code=code, error=format_error(code, sentence or error, length_factor))


def build_failure_outcome(
    claim: Claim, code: str, error: BaseException | str, length_factor: int = 1
) -> AttemptOutcome:
    """How an attempt ends after which no other is made."""
    setback = AttemptOutcome(claim, "failed", code=code, error=format_error(code, error, length_factor))
    if isinstance(error, BaseException):
        release_frames(error)
    return setback


def _explain_memory_error(step_call: StepCall, error: BaseException) -> BaseException:
    """The same error, or one that says more: Python has no words for a lack of memory."""
    isolation = step_call.step.policy.isolation
    if isolation is None or not isinstance(error, MemoryError):
        return error
    traceback.clear_frames(error.__traceback__)  # what the step held, so that there is memory to tell of it
    explained = OutOfMemory(
        f"{step_call.step.name!r} needed more than the {isolation.memory:,} bytes of memory that it may use: "
        "work on smaller parts, or allow more with Isolation(memory=...)"
    )
    explained.__cause__ = error
    return explained


def _get_error_code(error: BaseException) -> str:
    """An error may carry a code of its own, for people and programs."""
    if isinstance(error, MemoryError):
        return OUT_OF_MEMORY
    try:
        code = getattr(error, "code", None)
        return clean_text(code)[:MAX_CODE_LENGTH] if isinstance(code, str) else GENERIC_CODE
    except BaseException:  # noqa: BLE001  (it may be a property of the application's)
        return GENERIC_CODE


def format_error(code: str, error: BaseException | str, length_factor: int = 1) -> str:
    """What the event says of a failure, as JSON."""
    if isinstance(error, str):
        return json.dumps({"code": code, "message": clean_text(error)[: length_factor * MAX_MESSAGE_LENGTH]})
    return json.dumps(
        {
            "code": code,
            "type": type(error).__name__,
            "message": clean_text(_describe_error(error))[: length_factor * MAX_MESSAGE_LENGTH],
            "stack": clean_text(_format_stack(error))[-length_factor * MAX_STACK_LENGTH :],
        }
    )


def mask_outcome(outcome: AttemptOutcome) -> AttemptOutcome:
    """Return what a child process says of its attempt as it is recorded: the child has no secrets to know them by."""
    if outcome.error is None:
        return outcome
    said = json.loads(outcome.error)
    cuts = {
        "message": slice(MAX_MESSAGE_LENGTH),
        "stack": slice(-MAX_STACK_LENGTH, None),
        "code": slice(MAX_CODE_LENGTH),
    }
    kept = {name: clean_text(said[name])[cut] for name, cut in cuts.items() if isinstance(said.get(name), str)}
    return replace(
        outcome, code=outcome.code and clean_text(outcome.code)[:MAX_CODE_LENGTH], error=json.dumps(said | kept)
    )


def _format_stack(error: BaseException) -> str:
    try:
        lines = traceback.format_exception(error)
    except BaseException:  # noqa: BLE001  (it reads attributes of the application's error)
        lines = traceback.format_tb(error.__traceback__)
    return "".join(lines)


def _describe_error(error: BaseException) -> str:
    try:
        return describe_validation_error(error)
    except BaseException:  # noqa: BLE001  (an error of a step may fail even at saying what it is)
        return f"a {type(error).__name__} that cannot say what it is"


def clean_text(text: str) -> str:
    """Without secrets and the server's folders; and PostgreSQL's text knows no NUL, JSON no lone surrogate."""
    return hide_folders(mask_secrets(text)).replace("\0", "\N{REPLACEMENT CHARACTER}").encode(errors="replace").decode()
