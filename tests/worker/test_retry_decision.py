"""Whether a failed attempt is followed by another: values in, decision out."""

from __future__ import annotations

from datetime import timedelta
from typing import Any

import pytest

from retoma import Pipeline, Retry, minutes, seconds
from retoma.define.step import Policy
from retoma.worker.retry_decision import AnotherAttempt, FailureHistory, NoAttempt, decide_retry, find_position


def make_policy(**options: Any) -> Policy:
    pipeline = Pipeline("any")

    @pipeline.step(retry=Retry(2, delays=[10, 20], jitter=0), **options)
    def step() -> None: ...

    return pipeline.steps["step"].policy


def decide(
    policy: Policy,
    *,
    failures: int = 1,
    crashes: int = 0,
    run_retries: int | None = None,
    spent: timedelta = seconds(5),  # noqa: B008
    final: bool = False,
) -> Any:
    history = FailureHistory(failures, crashes, run_retries, spent, timedelta(0))
    return decide_retry(policy, history, is_final=final, random=0.5)


@pytest.mark.parametrize(("failures", "delay"), [(1, 10), (2, 20)])
def test_another_attempt_starts_after_the_delay_of_its_retry(failures: int, delay: int) -> None:
    assert decide(make_policy(), failures=failures) == AnotherAttempt(seconds(delay), seconds(5 + delay))


def test_there_are_no_more_attempts_than_retries() -> None:
    assert decide(make_policy(), failures=3) == NoAttempt()


@pytest.mark.parametrize(
    ("failures", "delay"), [(1, 10), (2, 20), (3, 120), (4, 10), (5, 20), (6, 120), (7, 10), (8, 20), (9, None)]
)
def test_each_provider_of_a_chain_has_all_retries(failures: int, delay: int | None) -> None:
    history = FailureHistory(failures, 0, None, seconds(5), timedelta(0), providers=3, switch_delay=seconds(120))
    decision = decide_retry(make_policy(), history, is_final=False, random=0.5)
    assert decision == (NoAttempt() if delay is None else AnotherAttempt(seconds(delay), seconds(5 + delay)))


@pytest.mark.parametrize(
    ("failures", "run_retries", "position"),
    [(0, None, 0), (2, None, 0), (3, None, 1), (9, None, 1), (1, 0, 1), (1, 1, 0)],
)
def test_the_next_provider_is_due_when_the_retries_are_used_up(
    failures: int, run_retries: int | None, position: int
) -> None:
    assert find_position(make_policy(), run_retries, failures, 2) == position


def test_a_run_may_allow_fewer_retries_and_never_more() -> None:
    policy = make_policy()
    assert decide(policy, failures=1, run_retries=0) == NoAttempt()
    assert decide(policy, failures=2, run_retries=2) == AnotherAttempt(seconds(20), seconds(25))
    assert decide(policy, failures=3, run_retries=9) == NoAttempt()


def test_the_third_crash_quarantines_whatever_retries_are_left() -> None:
    policy = make_policy()
    assert decide(policy, failures=2, crashes=2) == AnotherAttempt(seconds(20), seconds(25))
    assert decide(policy, failures=1, crashes=3) == NoAttempt(is_quarantined=True)
    assert decide(policy, crashes=3, final=True) == NoAttempt(is_quarantined=True)


def test_an_error_that_is_final_is_not_retried() -> None:
    assert decide(make_policy(), final=True) == NoAttempt()


def test_an_attempt_that_could_not_start_in_time_is_not_made() -> None:
    policy = make_policy(total_timeout=seconds(60))
    assert decide(policy, spent=seconds(50)) == AnotherAttempt(seconds(10), seconds(60))
    assert decide(policy, spent=seconds(51)).code == "TOTAL_TIMEOUT"


def test_delays_do_not_count_as_work_on_an_item() -> None:
    pipeline = Pipeline("any")

    @pipeline.step
    def names() -> list[str]:
        return []

    @pipeline.each(names, retry=Retry(2, delays=[10], jitter=0), work_limit=minutes(1))
    def read(name: str) -> None: ...

    policy = pipeline.steps["read"].policy
    assert decide(policy, spent=seconds(59)) == AnotherAttempt(seconds(10), seconds(59))
    history = FailureHistory(1, 0, None, seconds(59), seconds(1))
    assert decide_retry(policy, history, is_final=False, random=0.5) == NoAttempt(
        "TIMEOUT", "the 60 s allowed for all work on this item are used up"
    )
