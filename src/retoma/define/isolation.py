"""Isolation: run a step that may crash, hang or exhaust memory in a child process, with limits."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from datetime import timedelta

from retoma.define.definition_errors import Location
from retoma.define.durations import Duration, as_timedelta
from retoma.errors import DefinitionError

GIGABYTE = 1 << 30
_IMPORTING = False


@contextmanager
def importing_in_child() -> Iterator[None]:
    """Mark that this process, the child of a worker, imports the module of an isolated step."""
    global _IMPORTING
    _IMPORTING = True
    try:
        yield
    finally:
        _IMPORTING = False


def check_not_importing() -> None:
    """Raise DefinitionError if a child process that imports a step would run the whole script again."""
    if _IMPORTING:
        raise DefinitionError(
            "the child process of an isolated step imports this script, which would run it again; put its main code "
            'under `if __name__ == "__main__":`'
        )


@dataclass(frozen=True)
class Isolation:
    """Limits of one attempt: memory in bytes on top of what the child starts with, and processor time.

    Without `cpu` only the step's timeout limits its time. In either case the child is killed at the timeout.
    """

    memory: int = GIGABYTE
    cpu: Duration | None = None

    def __post_init__(self) -> None:
        if not isinstance(self.memory, int) or isinstance(self.memory, bool) or self.memory <= 0:
            raise DefinitionError(f"Isolation(memory={self.memory!r}): pass a number of bytes, such as 2 << 30")
        if self.cpu is not None:
            object.__setattr__(self, "cpu", _parse_cpu_time(self.cpu))


def _parse_cpu_time(value: object) -> timedelta:
    if isinstance(value, timedelta | int | float) and not isinstance(value, bool):
        with suppress(ValueError, OverflowError):  # nan and infinity
            if (time := as_timedelta(value)) > timedelta(0):
                return time
    raise DefinitionError(f"Isolation(cpu={value!r}): pass a duration above zero, such as minutes(1), or seconds")


def parse_isolation(value: object, location: Location) -> Isolation | None:
    """Return the value of `isolation=` as Isolation or None."""
    if value is None or isinstance(value, Isolation):
        return value
    if value == "process":
        return Isolation()
    raise location.error(f"isolation= is {value!r}; pass 'process', or Isolation(memory=..., cpu=...)")
