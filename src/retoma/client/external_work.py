"""`client.external_work`: the external work of runs, and its callbacks."""

from __future__ import annotations

import hashlib
import json
from typing import Any
from uuid import UUID

from retoma.client.core import Namespace
from retoma.errors import Gone, NotFound
from retoma.records import ExternalWork
from retoma.store import external_work
from retoma.trace_context import CURRENT_SPAN


class ExternalWorkQueries(Namespace):
    async def record_callback(self, token: str, body: Any = None) -> bool:
        """Record the callback of a parked job's external work. Return False if it was recorded before.

        Raise NotFound if the callback is unknown or has expired.
        """
        answer, attempt = await external_work.record_callback(
            self._database, hashlib.sha256(token.encode()).digest(), json.dumps(body)
        )
        if answer == "expired":
            raise Gone("this callback has expired: its job no longer waits for it")
        if answer == "unknown":
            raise NotFound("there is no such callback")
        self._core.starter.notify_workers()
        request = CURRENT_SPAN.get()
        if answer == "taken" and attempt is not None and request is not None:
            request.links.append(attempt)
        return answer == "taken"

    async def list(self, run: UUID) -> list[ExternalWork]:
        """Return the external work of this run, current and past, and its child runs (`is_child_run`)."""
        await self._core.check_run(run)
        return await external_work.list_for_run(self._database, run)
