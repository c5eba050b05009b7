"""Work that is done outside: what its provider says of it, and how a step hands it over and takes it back."""

from __future__ import annotations

import json
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from datetime import timedelta
from typing import Any, Literal

from retoma.errors import DefinitionError

ExternalWorkState = Literal["queued", "running", "succeeded", "failed", "cancelled", "lost"]
FINAL_STATES: frozenset[str] = frozenset({"succeeded", "failed", "cancelled", "lost"})


@dataclass(frozen=True)
class PollResult:
    """What a provider says of work that it was given.

    `lost` means that it knows nothing of it any more. `result` is JSON. `progress` goes from 0 to 1.
    """

    state: ExternalWorkState
    result: Any = None
    code: str | None = None
    message: str | None = None
    progress: float | None = None

    @property
    def is_final(self) -> bool:
        return self.state in FINAL_STATES


Poll = Callable[[Any], Awaitable[PollResult]]
Cancel = Callable[[Any], Awaitable[Any]]


@dataclass(frozen=True)
class ParkRequest:
    """Work given to the outside, as it is written down while the job is parked.

    `poll` and `cancel` are where the functions are found again, in whatever process looks next: `name.method` of a
    resource, or `module:function`. `effect` names the part of the job, done once, that has given it.
    """

    external_id: Any
    poll: str | None
    cancel: str | None
    poll_interval: timedelta
    queue_timeout: timedelta | None
    run_timeout: timedelta | None
    total_timeout: timedelta
    effect: str | None = None

    def to_json(self) -> str:
        """As `retoma.record_external_work` reads it: durations in seconds."""
        return json.dumps(vars(self), default=timedelta.total_seconds)


class Parked(BaseException):
    """Ends a step's function where its outside work begins. Not an error: let it pass."""

    def __init__(self, request: ParkRequest) -> None:
        super().__init__("this step's outside work goes on; its function is called again when that has ended")
        self.request = request


class Stopped(BaseException):
    """Ends a step's function in a run that stops, where it would begin something new. Not an error: let it pass."""


def locate_function(function: Callable[..., Any] | None, option: str, resources: dict[str, Any]) -> str | None:
    """Where a function is found again by another process."""
    if function is None:
        return None
    owner = getattr(function, "__self__", None)
    for name, resource in resources.items():
        if owner is resource and getattr(resource, function.__name__, None) == function:
            return f"{name}.{function.__name__}"
    name = getattr(function, "__qualname__", "")
    if owner is None and name and "<" not in name:
        return f"{function.__module__}:{name}"
    raise DefinitionError(
        f"{option}= is {function!r}, which another process could not find again: give a method of one of the step's "
        "resources, or a function at the top of its module"
    )
