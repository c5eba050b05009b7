"""Keys that callers show. A valid one is remembered for a moment; that a key is not valid never is."""

from __future__ import annotations

import time
from collections import OrderedDict
from collections.abc import Callable

from retoma.client import Client
from retoma.engine.keys import digest
from retoma.records import KeyRecord

SECONDS_REMEMBERED = 0.8  # so that a revoked key is refused everywhere within a second
MOST_REMEMBERED = 10_000


class Keyring:
    def __init__(self, client: Client, clock: Callable[[], float] = time.monotonic) -> None:
        self._client = client
        self._clock = clock
        self._seen: OrderedDict[bytes, tuple[KeyRecord, float]] = OrderedDict()

    def was_valid(self, secret: str) -> bool:
        """Whether this process has met it as a valid key; it may be revoked by now."""
        return digest(secret) in self._seen

    async def find(self, secret: str) -> KeyRecord | None:
        name = digest(secret)
        key, seen_at = self._seen.get(name, (None, 0.0))
        if key is not None and self._clock() - seen_at < SECONDS_REMEMBERED:
            return key
        asked_at = self._clock()
        found = await self._client.key_of(secret)
        if found is None:
            self._seen.pop(name, None)
        else:
            self._remember(name, found, asked_at)
        return found

    def _remember(self, name: bytes, key: KeyRecord, at: float) -> None:
        self._seen[name] = (key, at)
        self._seen.move_to_end(name)
        if len(self._seen) > MOST_REMEMBERED:
            self._seen.popitem(last=False)
