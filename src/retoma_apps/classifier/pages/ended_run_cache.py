"""A cache of values of ended executions, which do not change until their next round."""

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
    """Caches the last few. Values of an execution that may still change are loaded each time."""

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
