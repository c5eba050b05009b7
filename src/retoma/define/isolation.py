"""Isolation: a step that may crash, hang or eat memory runs in a child process, with limits and without secrets."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import timedelta

GIGABYTE = 1 << 30


@dataclass(frozen=True)
class Isolation:
    """Limits of one attempt: bytes of memory beyond what the child starts with, and processor time.

    Without `cpu` only the step's timeout limits its time. Either way the child is killed at the timeout.
    """

    memory: int = GIGABYTE
    cpu: timedelta | None = None


def as_isolation(given: object) -> Isolation | None:
    """What `isolation=` means; ValueError if it means nothing."""
    if given is None or isinstance(given, Isolation):
        return given
    if given == "process":
        return Isolation()
    raise ValueError(f"isolation= is {given!r}; give 'process', or Isolation(memory=..., cpu=...)")
