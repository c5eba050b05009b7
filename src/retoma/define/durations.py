"""Durations in seconds, minutes and hours."""

from __future__ import annotations

from datetime import timedelta

Duration = timedelta | float
"""A duration in a definition. Plain numbers are seconds."""


def seconds(number: float) -> timedelta:
    return timedelta(seconds=number)


def minutes(number: float) -> timedelta:
    return timedelta(minutes=number)


def hours(number: float) -> timedelta:
    return timedelta(hours=number)


def as_timedelta(duration: Duration) -> timedelta:
    return duration if isinstance(duration, timedelta) else timedelta(seconds=duration)
