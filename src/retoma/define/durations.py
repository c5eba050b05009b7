"""Durations as people say them."""

from __future__ import annotations

from datetime import timedelta

Duration = timedelta | float
"""What a definition may give for a length of time. Plain numbers are seconds."""


def seconds(number: float) -> timedelta:
    return timedelta(seconds=number)


def minutes(number: float) -> timedelta:
    return timedelta(minutes=number)


def hours(number: float) -> timedelta:
    return timedelta(hours=number)


def as_timedelta(duration: Duration) -> timedelta:
    return duration if isinstance(duration, timedelta) else timedelta(seconds=duration)
