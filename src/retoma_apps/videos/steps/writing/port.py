"""The port for writers: a language model, or the offline implementation."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Protocol

from retoma_apps.media.services import FilmWriter, UsageCallback
from retoma_apps.videos.models import Brief, Fact, Script


@dataclass(frozen=True)
class WritingRequest:
    """`facts` are those known so far. `feedback_history` is all feedback; `previous`, if any, follows all but the
    last."""

    brief: Brief
    facts: Sequence[Fact] = ()
    feedback_history: Sequence[str] = ()
    previous: Script | None = None


class Writer(FilmWriter, Protocol):
    """`on_usage` receives the cost of each call immediately, whatever follows.

    `follows_notes` says whether it follows free-form feedback, or only the requests that it knows.
    """

    follows_notes: bool

    async def research(self, request: WritingRequest, *, on_usage: UsageCallback | None = None) -> list[Fact]:
        """Return facts that the request does not contain yet."""

    async def script(self, request: WritingRequest, *, on_usage: UsageCallback | None = None) -> Script:
        """Write a script. The caller computes how much of it was known before."""
