"""The port for writers: a language model, or the offline implementation."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Protocol

from retoma_apps.providers.llm import Usage
from retoma_apps.providers.topics import Topic
from retoma_apps.videos.models import Brief, Fact, Script

UsageCallback = Callable[[Usage], None]


class Writer(Protocol):
    """`on_usage` receives the cost of each call immediately, whatever follows.

    Charges name it by `provider` and `name`, which is the model. `follows_notes` says whether it follows free-form
    feedback, or only the requests that it knows; `is_offline`, whether it runs on this machine, without a service.
    `topics` are the only ones that it can write about; None if it can write about any.
    """

    provider: str
    name: str
    follows_notes: bool
    is_offline: bool

    @property
    def topics(self) -> Sequence[Topic] | None: ...

    async def research(
        self,
        brief: Brief,
        known: Sequence[Fact],
        feedback_history: Sequence[str],
        *,
        on_usage: UsageCallback | None = None,
    ) -> list[Fact]:
        """Return new facts: none of them was known before."""

    async def script(
        self,
        brief: Brief,
        facts: Sequence[Fact],
        *,
        feedback_history: Sequence[str],
        previous: Script | None,
        on_usage: UsageCallback | None = None,
    ) -> Script:
        """Write a script. `feedback_history` is all feedback so far; `previous`, if any, follows all but the last.

        The caller computes how much of the script was known before.
        """
