"""External work: the state that its provider reports, and how a step parks and resumes."""

from __future__ import annotations

import json
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from datetime import timedelta
from typing import Any, Literal, NamedTuple

from retoma.errors import DefinitionError

ExternalWorkState = Literal["queued", "running", "succeeded", "failed", "cancelled", "lost"]
FINAL_STATES: frozenset[str] = frozenset({"succeeded", "failed", "cancelled", "lost"})


@dataclass(frozen=True)
class PollResult:
    """The state of external work, as its provider reports it.

    `lost` means that the provider no longer knows the work. `result` is JSON. `progress` is from 0 to 1.
    """

    state: ExternalWorkState
    result: Any = None
    code: str | None = None
    message: str | None = None
    progress: float | None = None

    @property
    def is_final(self) -> bool:
        return self.state in FINAL_STATES


Submit = Callable[[], Any]
Find = Callable[[str], Any]
Poll = Callable[[Any], Awaitable[PollResult]]
Cancel = Callable[[Any], Any]


@dataclass(frozen=True)
class ParkRequest:
    """How external work is polled while its job is parked. `poll` is the location of a function. `provider` is the
    provider of a chain that does the work.

    Without a `poll_interval` it is a child run, which is polled when it has ended.
    """

    poll: str | None
    poll_interval: timedelta | None
    queue_timeout: timedelta | None
    run_timeout: timedelta | None
    total_timeout: timedelta
    provider: str | None = None

    def to_json(self) -> str:
        """Return the request as `retoma.record_external_work` reads it, with durations in seconds."""
        return json.dumps(vars(self), default=timedelta.total_seconds)


class ParkJob(BaseException):
    """Ends a step's function when its external work starts, with the effect that did. Not an error: do not catch it."""

    def __init__(self, effect: str) -> None:
        super().__init__("the step waits for its external work; its function is called again once that has ended")
        self.effect = effect


def locate_function(function: Callable[..., Any] | None, option: str, resources: dict[str, Any]) -> str | None:
    """Return a location from which another process can load the function: `name.method` of a resource,
    `name[provider].method` of a provider in a chain, or `module:function`."""
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
        f"{option}= is {function!r}, which another process cannot load: pass a method of one of the step's "
        "resources, or a function at the top of its module"
    )


def locate_provider(chain: str, provider: str) -> str:
    """Return the location of a provider in a chain."""
    return f"{chain}[{provider}]"


class ProviderMethod(NamedTuple):
    """A method of a provider in a chain."""

    chain: str
    provider: str
    method: str


def parse_provider_method(location: str) -> ProviderMethod | None:
    """Return what a location says, or None if it is not that of a method of a provider in a chain."""
    chain, bracket, rest = location.partition("[")
    provider, end, method = rest.partition("].")
    return ProviderMethod(chain, provider, method) if bracket and end else None
