"""Isolation: a step that may crash, hang or eat memory runs in a child process, with limits and a bare environment."""

from __future__ import annotations

from contextlib import suppress
from dataclasses import dataclass
from datetime import timedelta

from retoma.define.durations import Duration, as_timedelta
from retoma.errors import DefinitionError

GIGABYTE = 1 << 30


@dataclass(frozen=True)
class Isolation:
    """Limits of one attempt: bytes of memory beyond what the child starts with, and processor time.

    Without `cpu` only the step's timeout limits its time. Either way the child is killed at the timeout.
    """

    memory: int = GIGABYTE
    cpu: Duration | None = None

    def __post_init__(self) -> None:
        if not isinstance(self.memory, int) or isinstance(self.memory, bool) or self.memory <= 0:
            raise DefinitionError(f"Isolation(memory={self.memory!r}): give a number of bytes, such as 2 << 30")
        if self.cpu is not None:
            object.__setattr__(self, "cpu", _processor_time(self.cpu))


def _processor_time(given: object) -> timedelta:
    if isinstance(given, timedelta | int | float) and not isinstance(given, bool):
        with suppress(ValueError, OverflowError):  # of a float that is no length of time
            if (time := as_timedelta(given)) > timedelta(0):
                return time
    raise DefinitionError(f"Isolation(cpu={given!r}): give a duration above zero, such as minutes(1), or its seconds")


def as_isolation(given: object) -> Isolation | None:
    """What `isolation=` means; ValueError if it means nothing."""
    if given is None or isinstance(given, Isolation):
        return given
    if given == "process":
        return Isolation()
    raise ValueError(f"isolation= is {given!r}; give 'process', or Isolation(memory=..., cpu=...)")
