"""One attempt: call the step's function and build its outcome."""

from __future__ import annotations

import asyncio
import random
import time
import traceback
from collections.abc import Callable
from dataclasses import replace
from datetime import timedelta
from typing import Any, Protocol

from msgspec import structs

from retoma.define.codec import describe_validation_error
from retoma.define.context import Context
from retoma.define.external_work import ParkJob
from retoma.define.items import SKIPPED
from retoma.define.retry import MAX_DELAY
from retoma.define.step import Policy
from retoma.engine import outcomes
from retoma.engine.claim_protocol import Claim
from retoma.engine.outcomes import NO_DELAY, AttemptError, Outcome, ReviewReason
from retoma.errors import (
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
from retoma.worker.chain_provider import ChainProvider, ProviderUsedUp
from retoma.worker.retry_decision import (
    AnotherAttempt,
    FailureHistory,
    decide_retry,
    describe_work_limit,
    find_position,
)
from retoma.worker.step_call import DependencyMissing, StepCall

MAX_MESSAGE_LENGTH = 2_000
MAX_STACK_LENGTH = 8_000
MAX_CODE_LENGTH = 100
# A child process cannot mask secrets, so it sends longer texts: the parent masks them before it truncates them.
UNMASKED_LENGTH_FACTOR = 50
OUT_OF_MEMORY = "OUT_OF_MEMORY"
MAX_SPENT_MS = 2**31 - 1  # the largest value of the column: 24 days


class SyncCaller(Protocol):
    """Calls a `def` function without blocking the event loop."""

    async def call(self, function: Callable[[], Any]) -> Any: ...


async def run_attempt(
    step_call: StepCall, claim: Claim, context: Context | None, threads: SyncCaller, *, length_factor: int = 1
) -> Outcome:
    """Run one attempt to its end, without a time limit. Raise only CancelledError.

    Error texts may be `length_factor` times as long as the texts that are recorded.
    """
    began = time.monotonic()
    try:
        data = step_call.build_arguments(claim)
        if not step_call.step.should_run(data):
            return outcomes.Skip(claim, SKIPPED)
        if sentence := step_call.explain_too_many_failed(data):
            return build_failure_outcome(claim, "TOO_MANY_FAILED", sentence, length_factor)
        function, machinery = step_call.step.function, step_call.build_resources(context)
        if step_call.is_async:
            value = await function(**data, **machinery)
        else:
            value = await threads.call(lambda: function(**data, **machinery))
        return outcomes.Success(claim, step_call.encode_result(value), step_call.encode_items(value))
    except BaseException as error:
        # Not isinstance: it reads `__class__`, which the error may have replaced.
        if issubclass(type(error), asyncio.CancelledError) and _is_cancelled():
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
) -> Outcome:
    """Return the outcome of an attempt that raised `error`."""
    match error:
        case DependencyMissing():
            return outcomes.Skip(claim, "DEPENDENCY_FAILED")
        case RetryLater() if step_call.provider is not None:
            return _classify_provider_error(step_call, step_call.provider, claim, error, seconds)
        case RetryLater():
            return _postpone(claim, error, error.delay, length_factor, account=step_call.account)
        case NeedsReview():
            return outcomes.ReviewRequest(claim, _build_review_reason(step_call, error, length_factor))
        case ParkJob(effect=effect):
            return outcomes.Parked(claim, effect)
        case _:
            return _retry_or_fail(step_call, claim, _explain_memory_error(step_call, error), seconds, length_factor)


def _classify_provider_error(
    step_call: StepCall, provider: ChainProvider, claim: Claim, error: RetryLater, seconds: float
) -> Outcome:
    """Return the outcome of an attempt whose provider of a chain did not do its work, and keep what it says about it.

    docs/charges.md has these rules as a table. Other errors are handled as in any step, except that each provider has
    all retries.
    """
    match error:
        case ProviderUsedUp():
            return _postpone(claim, error, NO_DELAY, provider=provider, next_provider=provider.next_name)
        case ProviderRejected():
            provider.set_report("rejected", min(error.delay, MAX_DELAY))
            next_name = None if provider.finds_only else provider.next_name
            # Without another provider the open breaker keeps the next attempt from starting, unless it is bound.
            delay = error.delay if provider.is_bound else NO_DELAY
            return _postpone(claim, error, delay, provider=provider, next_provider=next_name)
        case ProviderDown():
            provider.set_report("down")
            if provider.finds_only:  # it has not been asked yet what became of the call
                return _postpone(claim, error, error.delay, provider=provider)
            return _retry_or_fail(step_call, claim, error, seconds)
        case RateLimited():
            provider.set_report("rate_limited", min(error.delay, MAX_DELAY))
            return _postpone(claim, error, error.delay, provider=provider)
        case _:
            return _postpone(claim, error, error.delay, provider=provider)


def _postpone(
    claim: Claim,
    error: RetryLater,
    delay: timedelta,
    length_factor: int = 1,
    *,
    provider: ChainProvider | None = None,
    next_provider: str | None = None,
    account: str | None = None,
) -> Outcome:
    failure = describe_failure(error.wait_code, error, length_factor)
    if account is not None:
        # Named, it does not concern the step's pool: what a service says about one tenant's account stops no other one.
        failure = replace(failure, provider=f"connection of {account}")
    # Python cannot represent a time beyond the year 9999.
    return outcomes.Postponed(claim, _name_provider(failure, provider, next_provider), min(delay, MAX_DELAY))


def _name_provider(failure: AttemptError, provider: ChainProvider | None, next_provider: str | None) -> AttemptError:
    return failure if provider is None else replace(failure, provider=provider.name, next_provider=next_provider)


def _build_review_reason(step_call: StepCall, request: NeedsReview, length_factor: int) -> ReviewReason:
    return ReviewReason(
        clean_text(request.code)[:MAX_CODE_LENGTH],
        clean_text(_describe_error(request))[: length_factor * MAX_MESSAGE_LENGTH],
        None if request.value is None else step_call.encode_result(request.value),
    )


def _is_cancelled() -> bool:
    """Return whether the worker cancelled the attempt, and not code within the step."""
    task = asyncio.current_task()
    return task is not None and task.cancelling() > 0


def build_timeout_outcome(step_call: StepCall, claim: Claim, seconds: float, advice: str) -> Outcome:
    """Return the outcome of an attempt that exceeded its time limit."""
    name = step_call.step.name
    limit = step_call.step.policy.work_limit
    exceeded = (
        "its timeout" if limit is None or seconds == step_call.timeout else f"the rest of {describe_work_limit(limit)}"
    )
    error = TimedOut(f"{name!r} was still running after {seconds:g} s, {exceeded}{advice}")
    return _retry_or_fail(step_call, claim, error, seconds)


def build_crash_outcome(
    step_call: StepCall, claim: Claim, error: BaseException, seconds: float, length_factor: int = 1
) -> Outcome:
    """Return the outcome of an attempt whose child process died or could not be started. Never raises."""
    try:
        return _retry_or_fail(step_call, claim, make_readable(error), seconds, length_factor)
    except BaseException:  # noqa: BLE001  (application code, as an attribute of the error)
        failure = describe_failure(GENERIC_CODE, UnreadableError(describe_error(error)), length_factor)
        return outcomes.Failure(claim, failure)
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
) -> Outcome:
    policy, is_crash, provider = step_call.step.policy, isinstance(error, Crashed), step_call.provider
    failures = claim.earlier.failures + claim.failures + 1
    history = FailureHistory(
        failures=failures,
        crashes=claim.child_crashes + is_crash,
        run_retries=claim.run_retries,
        spent=timedelta(milliseconds=claim.spent_ms, seconds=seconds),
        spent_earlier=timedelta(milliseconds=claim.earlier.milliseconds),
        providers=1 if provider is None else len(provider.chain),
        switch_delay=NO_DELAY if provider is None else provider.chain.switch_delay,
    )
    is_final = not (policy.retry.covers(error) or isinstance(error, RetryLater))
    decision = decide_retry(policy, history, is_final=is_final, random=random.random())  # noqa: S311
    failure = describe_failure(_get_error_code(error), error, length_factor)
    if isinstance(decision, AnotherAttempt):
        next_provider = None if provider is None else _find_next_provider(policy, provider, claim, failures)
        spent_ms = min(MAX_SPENT_MS, int(decision.spent.total_seconds() * 1000))
        failure = _name_provider(failure, provider, next_provider)
        return outcomes.Retried(claim, failure, decision.delay, spent_ms, is_crash)
    if decision.code is not None:
        sentence = f"{_describe_error(error)}; {decision.explanation}"
        failure = describe_failure(decision.code, sentence, length_factor)
    return outcomes.Failure(claim, _name_provider(failure, provider, None), decision.is_quarantined)


def _find_next_provider(policy: Policy, provider: ChainProvider, claim: Claim, failures: int) -> str | None:
    """Return the provider to which the job moves on after so many failures, or None if it stays."""
    position = find_position(policy, claim.run_retries, failures, len(provider.chain))
    return provider.get_name_if_later(position)


def build_failure_outcome(claim: Claim, code: str, error: BaseException | str, length_factor: int = 1) -> Outcome:
    """Return the outcome of an attempt that failed and must not be retried."""
    readable = make_readable(error) if isinstance(error, BaseException) else error
    outcome = outcomes.Failure(claim, describe_failure(code, readable, length_factor))
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
        if isinstance(code, str):
            return clean_text(code)[:MAX_CODE_LENGTH]
        return error.wait_code if isinstance(error, RetryLater) else GENERIC_CODE
    except BaseException:  # noqa: BLE001  (`code` may be a property of the application)
        return GENERIC_CODE


def describe_failure(code: str, error: BaseException | str, length_factor: int = 1) -> AttemptError:
    """Return a failure as it is recorded."""
    if isinstance(error, str):
        return AttemptError(code, clean_text(error)[: length_factor * MAX_MESSAGE_LENGTH])
    return AttemptError(
        code,
        clean_text(_describe_error(error))[: length_factor * MAX_MESSAGE_LENGTH],
        get_class_name(error),
        clean_text(_format_stack(error))[-length_factor * MAX_STACK_LENGTH :],
    )


def mask_outcome(outcome: Outcome) -> Outcome:
    """Mask and truncate the texts of an outcome from a child process, which does not know the secrets."""
    match outcome:
        case outcomes.Retried() | outcomes.Failure() | outcomes.Postponed():
            return structs.replace(outcome, error=_mask_error(outcome.error))
        case outcomes.ReviewRequest(reason=ReviewReason() as reason):
            code, message = clean_text(reason.code)[:MAX_CODE_LENGTH], clean_text(reason.message)[:MAX_MESSAGE_LENGTH]
            return structs.replace(outcome, reason=replace(reason, code=code, message=message))
        case _:
            return outcome


def _mask_error(error: AttemptError) -> AttemptError:
    return replace(
        error,
        code=clean_text(error.code)[:MAX_CODE_LENGTH],
        message=clean_text(error.message)[:MAX_MESSAGE_LENGTH],
        stack=None if error.stack is None else clean_text(error.stack)[-MAX_STACK_LENGTH:],
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
