"""Work that is done outside."""

from __future__ import annotations

import hashlib
import json
from typing import Any
from uuid import UUID

from retoma.client.base import Base
from retoma.errors import Gone, NotFound
from retoma.records import ExternalWork
from retoma.store import external_work


class ExternalWorkMethods(Base):
    async def outside(self, run: UUID) -> list[ExternalWork]:
        """The work of this run that is or was done outside."""
        return await external_work.list_for_run(self.database, run)

    async def call_back(self, token: str, body: Any = None) -> bool:
        """The outside calls the one-time address of a parked job. False if it did before.

        Raises NotFound if there is no such callback, or not any more.
        """
        answer = await external_work.record_callback(
            self.database, hashlib.sha256(token.encode()).digest(), json.dumps(body)
        )
        if answer == "expired":
            raise Gone("this callback came too late: its time has passed")
        if answer == "unknown":
            raise NotFound("there is no such callback")
        self._starter.notify_workers()
        return answer == "taken"
