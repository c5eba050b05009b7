"""Decide whether a failed attempt is followed by another one. Only the death of a worker is decided elsewhere, in
`record_outcomes.sql`, by those who notice it."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import timedelta

from retoma.define.step import Policy

MAX_CRASHES = 3
NO_DELAY = timedelta(0)


@dataclass(frozen=True, slots=True)
class FailureHistory:
    """What an attempt that has just failed adds up to, with everything before it.

    `failures` counts failed attempts at the item, `crashes` those in which its child process died, and `spent` is the
    time used for the job, all including this attempt. `run_retries` is the run's own limit, if it has one.
    `spent_earlier` is the time that the steps before it worked on the item, if the step continues them. `providers` is
    the number of providers in the step's chain, and `switch_delay` the delay before the next of them is tried.
    """

    failures: int
    crashes: int
    run_retries: int | None
    spent: timedelta
    spent_earlier: timedelta
    providers: int = 1
    switch_delay: timedelta = NO_DELAY


@dataclass(frozen=True, slots=True)
class AnotherAttempt:
    """After the delay. `spent` is the time used up by then."""

    delay: timedelta
    spent: timedelta


@dataclass(frozen=True, slots=True)
class NoAttempt:
    """`code` and `explanation` say which limit was reached, if it was one of time."""

    code: str | None = None
    explanation: str | None = None
    is_quarantined: bool = False


def decide_retry(
    policy: Policy, history: FailureHistory, *, is_final: bool, random: float
) -> AnotherAttempt | NoAttempt:
    """Decide by the retries of the step and the run, and by the step's delays and limits of time. `is_final` errors are
    never retried. Each provider of a chain has all retries.

    `random`, from 0 to 1, spreads the delay.
    """
    if history.crashes >= MAX_CRASHES:
        return NoAttempt(is_quarantined=True)
    attempts = count_attempts(policy, history.run_retries)
    if is_final or history.failures >= attempts * history.providers:
        return NoAttempt()
    delay, spent = _get_delay(policy, history, history.failures % attempts, random), history.spent
    if policy.work_limit is None:
        spent += delay
    elif spent + history.spent_earlier >= policy.work_limit:
        return NoAttempt("TIMEOUT", f"{describe_work_limit(policy.work_limit)} are used up")
    if policy.total_timeout is not None and spent > policy.total_timeout:
        return NoAttempt(
            "TOTAL_TIMEOUT",
            f"another attempt would exceed total_timeout={policy.total_timeout}, the limit for all attempts together",
        )
    return AnotherAttempt(delay, spent)


def find_position(policy: Policy, run_retries: int | None, failures: int, providers: int) -> int:
    """Return the position of the provider that is next in order after so many failures."""
    return min(failures // count_attempts(policy, run_retries), providers - 1)


def count_attempts(policy: Policy, run_retries: int | None) -> int:
    """Return how many attempts a job has, with each provider if it has several."""
    retries = policy.retry.retries
    return 1 + (retries if run_retries is None else min(retries, run_retries))


def _get_delay(policy: Policy, history: FailureHistory, retry: int, random: float) -> timedelta:
    """Return the delay before this retry with the same provider, or before the next provider if it is 0."""
    if retry == 0:
        return policy.retry.spread(history.switch_delay, random)
    return policy.retry.delay(retry, random)


def describe_work_limit(limit: timedelta) -> str:
    return f"the {limit.total_seconds():g} s allowed for all work on this item"
