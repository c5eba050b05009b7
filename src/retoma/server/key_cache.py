"""Cache valid API keys for less than a second. Invalid keys are never cached."""

from __future__ import annotations

import time
from collections import OrderedDict
from collections.abc import Callable

from retoma.client import Client
from retoma.engine.api_keys import hash_secret
from retoma.records import ApiKey

TTL_SECONDS = 0.8  # a revoked key must be rejected everywhere within a second
MAX_CACHED_KEYS = 10_000


class KeyCache:
    def __init__(self, client: Client, clock: Callable[[], float] = time.monotonic) -> None:
        self._client = client
        self._clock = clock
        self._cached: OrderedDict[bytes, tuple[ApiKey, float]] = OrderedDict()

    def was_valid(self, secret: str) -> bool:
        """Return whether the key was valid when this process last checked it. It may be revoked since."""
        return hash_secret(secret) in self._cached

    async def find(self, secret: str) -> ApiKey | None:
        name = hash_secret(secret)
        key, checked_at = self._cached.get(name, (None, 0.0))
        if key is not None and self._clock() - checked_at < TTL_SECONDS:
            return key
        queried_at = self._clock()
        found = await self._client.api_keys.find_by_secret(secret)
        if found is None:
            self._cached.pop(name, None)
        else:
            self._store(name, found, queried_at)
        return found

    def _store(self, name: bytes, key: ApiKey, at: float) -> None:
        self._cached[name] = (key, at)
        self._cached.move_to_end(name)
        if len(self._cached) > MAX_CACHED_KEYS:
            self._cached.popitem(last=False)
