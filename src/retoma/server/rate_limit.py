"""Rate limits of one process, as token buckets."""

from __future__ import annotations

import time
from collections import OrderedDict
from collections.abc import Callable, Hashable

MAX_BUCKETS = 10_000


class RateLimiter:
    """Hold a bucket of `per_minute` tokens per name. Beyond MAX_BUCKETS, the least recently used one is dropped."""

    def __init__(self, per_minute: int, clock: Callable[[], float] = time.monotonic) -> None:
        self._capacity = float(per_minute)
        self._per_second = per_minute / 60
        self._clock = clock
        self._buckets: OrderedDict[Hashable, tuple[float, float]] = OrderedDict()

    def take(self, name: Hashable) -> float:
        """Take a token and return 0, or return the seconds until one is available."""
        now = self._clock()
        tokens = self._refill(name, now)
        self._store(name, tokens - 1 if tokens >= 1 else tokens, now)
        return 0.0 if tokens >= 1 else (1 - tokens) / self._per_second

    def get_wait(self, name: Hashable) -> float:
        """Return the seconds until a token is available, without taking it."""
        tokens = self._refill(name, self._clock())
        return 0.0 if tokens >= 1 else (1 - tokens) / self._per_second

    def _refill(self, name: Hashable, now: float) -> float:
        tokens, at = self._buckets.get(name, (self._capacity, now))
        return min(self._capacity, tokens + (now - at) * self._per_second)

    def _store(self, name: Hashable, tokens: float, now: float) -> None:
        self._buckets[name] = (tokens, now)
        self._buckets.move_to_end(name)
        if len(self._buckets) > MAX_BUCKETS:
            self._buckets.popitem(last=False)
