"""What a step may know about the attempt that runs it: its `ctx` parameter, right of `*`."""

from __future__ import annotations

from dataclasses import dataclass
from uuid import UUID


@dataclass(frozen=True)
class Context:
    """`attempt` counts from 1. `maybe_done` is True if an earlier attempt began and may have had its effects."""

    run: UUID
    tenant: str
    pipeline: str
    step: str
    item: str = ""
    revision: int = 1
    attempt: int = 1
    maybe_done: bool = False

    @property
    def effect_key(self) -> str:
        """The same for every attempt at this work: for a call outside that must not be doubled."""
        return f"{self.subject_key}:{self.revision}"

    @property
    def subject_key(self) -> str:
        """The same for every revision too: for a thing outside that newer revisions update."""
        return f"{self.run}:{self.step}:{self.item}"
