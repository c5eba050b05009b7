"""Answers letters: calls the callbacks of submitted work, some of them twice, and never says no for an answer."""

from __future__ import annotations

import asyncio
from pathlib import Path

from bench.chaos import farm
from bench.chaos.chance import chance
from retoma.client import Client
from retoma.errors import DatabaseUnavailable, RetomaError

BETWEEN_ROUNDS = 0.1


class Postman:
    """`contradictions` are answers that nobody wanted to have asked for."""

    def __init__(self, client: Client, folder: Path) -> None:
        self.delivered = 0
        self.repeated = 0
        self.contradictions: list[str] = []
        self._client = client
        self._folder = folder
        self._done: set[str] = set()

    async def walk(self) -> None:
        """Until cancelled."""
        while True:
            # What is polled may be told of, too: there a callback is only a hint.
            await asyncio.gather(*(self._answer(work) for work in farm.works(self._folder) if self._wants(work)))
            await asyncio.sleep(BETWEEN_ROUNDS)

    def _wants(self, work: farm.Work) -> bool:
        if work.handle in self._done or work.callback is None:
            return False
        return ":letter:" in work.key or chance("called", work.handle) < 0.3

    async def _answer(self, work: farm.Work) -> None:
        token = (work.callback or "").rpartition("/")[2]
        try:
            for _ in range(1 + (chance("called twice", work.handle) < 0.3)):
                taken = await self._client.call_back(token, farm.worth(work.key))
                self.delivered += taken
                self.repeated += not taken
        except DatabaseUnavailable:
            return  # in the next round
        except RetomaError as error:
            self.contradictions.append(f"{work.handle}: {error}")
        self._done.add(work.handle)
