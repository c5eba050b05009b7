"""Who writes: a language model, or the offline twin."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Protocol

from retoma_apps.providers.llm import Usage
from retoma_apps.videos.models import Brief, Fact, FrozenModel, Script

UsageCallback = Callable[[Usage], None]


class ResearchResult(FrozenModel):
    """`facts` are new ones: none of those that were known before."""

    facts: list[Fact]


class ScriptResult(FrozenModel):
    """How much of the script was known before is the caller's to say."""

    script: Script


class Writer(Protocol):
    """`paid` is told what each call has cost at once, whatever follows.

    `follows_notes` says whether it follows what reviewers write in their own words, or only wishes that it knows.
    """

    name: str
    follows_notes: bool

    async def research(
        self,
        brief: Brief,
        known: Sequence[Fact],
        feedback_history: Sequence[str],
        *,
        on_usage: UsageCallback | None = None,
    ) -> ResearchResult: ...

    async def script(
        self,
        brief: Brief,
        facts: Sequence[Fact],
        *,
        feedback_history: Sequence[str],
        previous: Script | None,
        on_usage: UsageCallback | None = None,
    ) -> ScriptResult:
        """`wishes` are all that reviewers have said so far. `former` meets them but the last, if it is given."""
