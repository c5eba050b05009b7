"""Call the callbacks of submitted work, some of them twice, and retry until each is accepted."""

from __future__ import annotations

import asyncio
from pathlib import Path

from bench.chaos import fake_provider
from bench.chaos.chance import chance
from retoma.client import Client
from retoma.errors import DatabaseUnavailable, RetomaError

SECONDS_BETWEEN_ROUNDS = 0.1


class CallbackSender:
    """`contradictions` are unexpected responses."""

    def __init__(self, client: Client, folder: Path) -> None:
        self.delivered = 0
        self.repeated = 0
        self.contradictions: list[str] = []
        self._client = client
        self._folder = folder
        self._done: set[str] = set()

    async def run(self) -> None:
        """Until cancelled."""
        while True:
            # Polled work may have a callback too: there it is only a hint.
            await asyncio.gather(
                *(self._send(work) for work in fake_provider.list_work(self._folder) if self._is_due(work))
            )
            await asyncio.sleep(SECONDS_BETWEEN_ROUNDS)

    def _is_due(self, work: fake_provider.Work) -> bool:
        if work.external_id in self._done or work.callback is None:
            return False
        return work.step in fake_provider.CALLS_BACK or chance("called", work.external_id) < 0.3

    async def _send(self, work: fake_provider.Work) -> None:
        token = (work.callback or "").rpartition("/")[2]
        work.record("called_back")
        try:
            for _ in range(1 + (chance("called twice", work.external_id) < 0.3)):
                taken = await self._client.external_work.record_callback(token, fake_provider.result_of(work.key))
                self.delivered += taken
                self.repeated += not taken
        except DatabaseUnavailable:
            return  # in the next round
        except RetomaError as error:
            self.contradictions.append(f"{work.external_id}: {error}")
        self._done.add(work.external_id)
