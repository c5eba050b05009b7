"""Count the requests that this server receives."""

from __future__ import annotations

import time
from collections import deque

from starlette.types import ASGIApp, Receive, Scope, Send

WINDOW_SECONDS = 60
UNCOUNTED_PATHS = ("/healthz", "/readyz", "/metrics")


class RequestRate:
    """The number of requests since the server started, and their rate within the last minute."""

    def __init__(self) -> None:
        self.total = 0
        self._started = time.monotonic()
        self._by_second: deque[tuple[int, int]] = deque(maxlen=WINDOW_SECONDS)

    def count(self) -> None:
        self.total += 1
        second = int(time.monotonic())
        last, requests = self._by_second.pop() if self._by_second else (second, 0)
        if last != second:
            self._by_second.append((last, requests))
            requests = 0
        self._by_second.append((second, requests + 1))

    def get_rate(self) -> float:
        """Return the requests per second of the last minute, or since the server started if that is less."""
        now = time.monotonic()
        recent = sum(requests for second, requests in self._by_second if second > now - WINDOW_SECONDS)
        return recent / min(max(now - self._started, 1.0), WINDOW_SECONDS)


class CountRequests:
    """Count every request except health checks and reads of the metrics."""

    def __init__(self, app: ASGIApp, rate: RequestRate) -> None:
        self._app = app
        self._rate = rate

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] == "http" and scope["path"] not in UNCOUNTED_PATHS:
            self._rate.count()
        await self._app(scope, receive, send)
