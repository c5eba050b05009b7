"""One attempt: call the step's function within its time, and say how it ended."""

from __future__ import annotations

import json
import random
import time
import traceback
from collections.abc import Callable
from datetime import timedelta
from typing import Any, Protocol

from retoma.define.context import Context
from retoma.define.items import NOT_WANTED
from retoma.engine.exchange import Claim, Result, SetBack
from retoma.errors import GiveUp, RetryLater
from retoma.worker.plan import Plan

LONGEST_MESSAGE = 2_000
LONGEST_STACK = 8_000


class Caller(Protocol):
    """Calls a plain function where it does not hold up the event loop."""

    async def call(self, function: Callable[[], Any]) -> Any: ...


async def attempt(plan: Plan, claim: Claim, context: Context, threads: Caller) -> Result | SetBack:
    """Run one attempt to its end, however long it takes. Raises only CancelledError."""
    began = time.monotonic()
    try:
        data = plan.data(claim)
        if not plan.step.wanted(data):
            return SetBack(claim, "skipped", code=NOT_WANTED)
        if sentence := plan.too_many_failed(data):
            return _failed(claim, "TOO_MANY_FAILED", sentence)
        function, machinery = plan.step.function, plan.machinery(context)
        if plan.is_async:
            value = await function(**data, **machinery)
        else:
            value = await threads.call(lambda: function(**data, **machinery))
        return Result(claim, plan.output(value), plan.items(value))
    except RetryLater as request:
        return SetBack(claim, "wait", delay=request.delay, code="ASKED_TO_WAIT", error=told("ASKED_TO_WAIT", request))
    except Exception as error:  # noqa: BLE001  (whatever a step raises is a failed attempt)
        return _setback(plan, claim, error, time.monotonic() - began)


def timed_out(plan: Plan, claim: Claim, advice: str) -> SetBack:
    """How an attempt ends that outlived its timeout."""
    error = TimedOut(f"{plan.step.name!r} was still running after {plan.timeout:g} s, its timeout{advice}")
    return _setback(plan, claim, error, plan.timeout)


def crashed(plan: Plan, claim: Claim, error: Crashed, seconds: float) -> SetBack:
    """How an attempt ends whose child process died."""
    return _setback(plan, claim, error, seconds)


class Crashed(Exception):
    """The child process that ran an isolated step died."""

    def __init__(self, sentence: str, code: str = "CRASHED") -> None:
        super().__init__(sentence)
        self.code = code


class TimedOut(TimeoutError):
    """Ours, and not one that the step's function met by itself."""

    code = "TIMEOUT"


def _setback(plan: Plan, claim: Claim, error: Exception, seconds: float) -> SetBack:
    code = _code(error)
    policy, failures = plan.step.policy, claim.failures + 1
    if isinstance(error, GiveUp) or failures > policy.retry.retries or not policy.retry.covers(error):
        return _failed(claim, code, error)
    delay = policy.retry.delay(failures, random.random())  # noqa: S311
    spent = timedelta(milliseconds=claim.spent_ms) + timedelta(seconds=seconds) + delay
    if policy.total is not None and spent > policy.total:
        return _failed(
            claim,
            "TOTAL_TIMEOUT",
            f"another try would pass the {policy.total} that all tries may take; {error}",
        )
    return SetBack(
        claim,
        "crashed" if isinstance(error, Crashed) else "retry",
        delay=delay,
        spent_ms=int(spent.total_seconds() * 1000),
        code=code,
        error=told(code, error),
    )


def _failed(claim: Claim, code: str, error: Exception | str) -> SetBack:
    return SetBack(claim, "failed", code=code, error=told(code, error))


def _code(error: Exception) -> str:
    """An error may carry a code of its own, for people and programs."""
    if isinstance(error, MemoryError):
        return "OUT_OF_MEMORY"
    code = getattr(error, "code", None)
    return code if isinstance(code, str) else "ERROR"


def told(code: str, error: Exception | str) -> str:
    """What the event says of a failure, as JSON."""
    if isinstance(error, str):
        return json.dumps({"code": code, "message": error[:LONGEST_MESSAGE]})
    stack = "".join(traceback.format_exception(error))
    return json.dumps(
        {
            "code": code,
            "type": type(error).__name__,
            "message": _clean(str(error))[:LONGEST_MESSAGE],
            "stack": _clean(stack)[-LONGEST_STACK:],
        }
    )


def _clean(text: str) -> str:
    """PostgreSQL's text knows no NUL, and JSON no lone surrogate."""
    return text.replace("\0", "\N{REPLACEMENT CHARACTER}").encode(errors="replace").decode()
