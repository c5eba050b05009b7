"""What is known of executions that have ended, which stays so until their next round."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import Generic, TypeVar
from uuid import UUID

from retoma.records import Run
from retoma.states import RunState

MAX_ENTRIES = 200
ENDED = (RunState.COMPLETED, RunState.COMPLETED_WITH_ERRORS)

Value = TypeVar("Value")


class EndedRunCache(Generic[Value]):
    """Keeps the last few. An execution that may still change is looked at anew each time."""

    def __init__(self) -> None:
        self._values: dict[tuple[UUID, int], Value] = {}

    async def get_or_load(self, run: Run, load: Callable[[], Awaitable[Value]]) -> Value:
        if run.state not in ENDED:
            return await load()
        place = (run.id, run.revision)
        if place not in self._values:
            self._values = dict(list(self._values.items())[1 - MAX_ENTRIES :])
            self._values[place] = await load()
        return self._values[place]
