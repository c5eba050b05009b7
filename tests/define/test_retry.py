from datetime import timedelta

import pytest

from retoma.define.durations import minutes
from retoma.define.retry import DEFAULT_RETRY, Retry, exponential, fixed_delay
from retoma.errors import DefinitionError, GiveUp

MIDDLE = 0.5  # of the random range, where jitter changes nothing


def delays(retry: Retry, number: int) -> list[float]:
    return [retry.delay(one, MIDDLE).total_seconds() for one in range(1, number + 1)]


def test_exponential_delays_grow_by_their_factor() -> None:
    assert delays(Retry(4, backoff=exponential(5)), 4) == [5, 10, 20, 40]
    assert delays(Retry(3, backoff=exponential(1, factor=3)), 3) == [1, 3, 9]


def test_exponential_delays_stop_growing_at_their_cap() -> None:
    assert delays(Retry(4, backoff=exponential(5, cap=minutes(0.25))), 4) == [5, 10, 15, 15]


def test_an_exponential_delay_without_a_cap_is_never_above_a_year() -> None:
    assert Retry(9999, backoff=exponential(5)).delay(9999, MIDDLE) == timedelta(days=365)


def test_the_last_of_the_listed_delays_repeats() -> None:
    assert delays(Retry(4, delays=[10, timedelta(seconds=30)]), 4) == [10, 30, 30, 30]


def test_fixed_delays_stay_the_same() -> None:
    assert delays(Retry(3, backoff=fixed_delay(10)), 3) == [10, 10, 10]


def test_without_a_backoff_delays_start_at_two_seconds() -> None:
    assert delays(Retry(3), 3) == [2, 4, 8]


def test_the_default_is_two_retries() -> None:
    assert DEFAULT_RETRY.retries == 2
    assert delays(DEFAULT_RETRY, 2) == [2, 4]


def test_jitter_moves_a_delay_by_a_tenth_either_way() -> None:
    retry = Retry(1, backoff=fixed_delay(100))
    assert retry.delay(1, 0.0) == timedelta(seconds=90)
    assert timedelta(seconds=109.9) < retry.delay(1, 0.9999) < timedelta(seconds=110)


def test_jitter_can_be_turned_off() -> None:
    assert Retry(1, backoff=fixed_delay(100), jitter=0).delay(1, 0.0) == timedelta(seconds=100)


def test_all_errors_except_give_up_are_retried() -> None:
    assert Retry(1).covers(ValueError())
    assert not Retry(1).covers(GiveUp("no"))


def test_only_the_named_errors_are_retried() -> None:
    retry = Retry(1, on=(TimeoutError, ConnectionError))
    assert retry.covers(ConnectionResetError())
    assert not retry.covers(ValueError())
    assert Retry(1, on=TimeoutError).on == (TimeoutError,)


def test_equal_retries_are_equal_and_can_be_hashed() -> None:
    assert Retry(2, delays=[10, 30]) == Retry(2, delays=(10, timedelta(seconds=30)))
    assert len({Retry(2, delays=[10]), Retry(2, delays=[10])}) == 1


def test_impossible_retry_policies_are_rejected() -> None:
    with pytest.raises(DefinitionError, match="0 or more"):
        Retry(-1)
    with pytest.raises(DefinitionError, match="from 0 to 1"):
        Retry(1, jitter=1.5)
    with pytest.raises(DefinitionError, match="not both"):
        Retry(1, backoff=fixed_delay(1), delays=[1])
    with pytest.raises(DefinitionError, match="cannot be negative"):
        Retry(1, delays=[-1])
    with pytest.raises(DefinitionError, match="the delays would shrink"):
        exponential(5, factor=0.5)
