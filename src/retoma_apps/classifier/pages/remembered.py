"""What is known of executions that have ended, which stays so until their next round."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import Generic, TypeVar
from uuid import UUID

from retoma.records import Run
from retoma.states import RunState

MOST = 200
ENDED = (RunState.COMPLETED, RunState.COMPLETED_WITH_ERRORS)

Known = TypeVar("Known")


class Remembered(Generic[Known]):
    """Keeps the last few. An execution that may still change is looked at anew each time."""

    def __init__(self) -> None:
        self._known: dict[tuple[UUID, int], Known] = {}

    async def of(self, run: Run, make: Callable[[], Awaitable[Known]]) -> Known:
        if run.state not in ENDED:
            return await make()
        place = (run.id, run.revision)
        if place not in self._known:
            self._known = dict(list(self._known.items())[1 - MOST :])
            self._known[place] = await make()
        return self._known[place]
