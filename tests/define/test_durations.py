from datetime import timedelta

from retoma.define.durations import as_timedelta, hours, minutes, seconds


def test_durations_become_timedeltas() -> None:
    assert seconds(90) == minutes(1.5) == timedelta(seconds=90)
    assert hours(2) == timedelta(hours=2)


def test_plain_numbers_are_seconds() -> None:
    assert as_timedelta(2.5) == timedelta(seconds=2.5)
    assert as_timedelta(minutes(1)) == timedelta(minutes=1)
