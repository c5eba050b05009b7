"""Retry policies: which errors are retried, how often, and after which delay."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import KW_ONLY, dataclass
from datetime import timedelta
from math import inf

from retoma.define.durations import Duration, as_timedelta
from retoma.errors import DefinitionError, GiveUp

Backoff = Callable[[int], timedelta]
"""Returns the delay before a retry, which is counted from 1."""

MAX_DELAY = timedelta(days=365)


@dataclass(frozen=True)
class Exponential:
    base: timedelta
    factor: float
    cap: timedelta

    def __call__(self, retry: int) -> timedelta:
        return timedelta(seconds=min(self.cap.total_seconds(), self._compute_seconds(retry)))

    def _compute_seconds(self, retry: int) -> float:
        try:
            return self.base.total_seconds() * self.factor ** (retry - 1)
        except OverflowError:
            return inf


@dataclass(frozen=True)
class Delays:
    """One delay per retry; the last one repeats."""

    series: tuple[timedelta, ...]

    def __call__(self, retry: int) -> timedelta:
        return self.series[min(retry, len(self.series)) - 1]


def exponential(base: Duration, factor: float = 2, cap: Duration | None = None) -> Exponential:
    """Return delays of base, base * factor, base * factor ** 2 and so on, up to `cap` (default: one year)."""
    if factor < 1:
        raise DefinitionError(f"exponential(factor={factor}): with a factor below 1 the delays would shrink")
    longest = MAX_DELAY if cap is None else _parse_delay(cap)
    return Exponential(_parse_delay(base), float(factor), longest)


def fixed_delay(delay: Duration) -> Delays:
    """Return the same delay before every retry."""
    return Delays((_parse_delay(delay),))


@dataclass(frozen=True)
class Retry:
    """Up to `retries` further attempts after the first.

    The delays come from `backoff` or `delays`, with a random variation of up to the fraction `jitter` either way.
    `on` restricts retries to these errors; by default all errors are retried. A GiveUp never is.
    """

    retries: int
    _: KW_ONLY
    backoff: Backoff | None = None
    delays: Sequence[Duration] = ()
    jitter: float = 0.1
    on: type[BaseException] | tuple[type[BaseException], ...] | None = None

    def __post_init__(self) -> None:
        if not isinstance(self.retries, int) or self.retries < 0:
            raise DefinitionError(f"Retry({self.retries!r}): the number of retries must be a whole number, 0 or more")
        if not 0 <= self.jitter <= 1:
            raise DefinitionError(f"Retry(jitter={self.jitter!r}): jitter must be a fraction from 0 to 1")
        if self.backoff is not None and self.delays:
            raise DefinitionError("Retry: pass either backoff= or delays=, not both")
        object.__setattr__(self, "delays", tuple(_parse_delay(delay) for delay in self.delays))
        if isinstance(self.on, type):
            object.__setattr__(self, "on", (self.on,))

    def delay(self, retry: int, random: float) -> timedelta:
        """Return the delay before this retry, counted from 1. `random` is in [0, 1)."""
        return self.spread(self._backoff_series(retry), random)

    def spread(self, delay: timedelta, random: float) -> timedelta:
        """Return a delay with its random variation. `random` is in [0, 1)."""
        return delay * (1 + self.jitter * (2 * random - 1))

    def covers(self, error: BaseException) -> bool:
        """Return whether an attempt that ended with this error may be retried."""
        if isinstance(error, GiveUp):
            return False
        return self.on is None or isinstance(error, self.on)

    @property
    def _backoff_series(self) -> Backoff:
        if self.delays:
            return Delays(tuple(as_timedelta(delay) for delay in self.delays))
        return self.backoff or DEFAULT_BACKOFF


def _parse_delay(duration: Duration) -> timedelta:
    delay = as_timedelta(duration)
    if delay < timedelta(0):
        raise DefinitionError(f"a delay of {delay.total_seconds():g} s: a delay cannot be negative")
    return delay


DEFAULT_BACKOFF = exponential(2)
DEFAULT_RETRY = Retry(2, backoff=DEFAULT_BACKOFF)
