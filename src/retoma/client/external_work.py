"""`client.external_work`: work that other services do for jobs, and their callbacks."""

from __future__ import annotations

import hashlib
import json
from typing import Any
from uuid import UUID

from retoma.client.core import Namespace
from retoma.errors import Gone, NotFound
from retoma.records import ExternalWork
from retoma.store import external_work


class ExternalWorkQueries(Namespace):
    async def record_callback(self, token: str, body: Any = None) -> bool:
        """The outside calls the one-time address of a parked job. False if it did before.

        Raises NotFound if there is no such callback, or not any more.
        """
        answer = await external_work.record_callback(
            self._database, hashlib.sha256(token.encode()).digest(), json.dumps(body)
        )
        if answer == "expired":
            raise Gone("this callback came too late: its time has passed")
        if answer == "unknown":
            raise NotFound("there is no such callback")
        self._core.starter.notify_workers()
        return answer == "taken"

    async def list(self, run: UUID) -> list[ExternalWork]:
        """The work of this run that is or was done outside."""
        return await external_work.list_for_run(self._database, run)
