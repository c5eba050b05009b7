"""Work that is done outside."""

from __future__ import annotations

import hashlib
import json
from typing import Any
from uuid import UUID

from retoma.client.base import Base
from retoma.errors import Gone, NotFound
from retoma.records import Outside
from retoma.store import outside


class OutsideWork(Base):
    async def outside(self, run: UUID) -> list[Outside]:
        """The work of this run that is or was done outside."""
        return await outside.of_run(self.database, run)

    async def call_back(self, token: str, body: Any = None) -> bool:
        """The outside calls the one-time address of a parked job. False if it did before.

        Raises NotFound if there is no such callback, or not any more.
        """
        answer = await outside.call_back(self.database, hashlib.sha256(token.encode()).digest(), json.dumps(body))
        if answer == "expired":
            raise Gone("this callback came too late: its time has passed")
        if answer == "unknown":
            raise NotFound("there is no such callback")
        self._starter.tell_of_work()
        return answer == "taken"
