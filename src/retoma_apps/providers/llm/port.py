"""The port to whatever answers in words: a language model, its stand-in, or a small model on this machine."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Literal, Protocol

from pydantic import BaseModel

Role = Literal["system", "user", "assistant"]


@dataclass(frozen=True)
class Message:
    """What others wrote belongs into a user's message, marked by `prompts.quoted`, and never into a system's."""

    role: Role
    content: str


@dataclass(frozen=True)
class Usage:
    """`cost` is in millionths of a US dollar; None means that the provider did not say, and not that it was free."""

    prompt_tokens: int = 0
    completion_tokens: int = 0
    cost: int | None = 0

    def __add__(self, other: Usage) -> Usage:
        is_known = self.cost is not None and other.cost is not None
        return Usage(
            self.prompt_tokens + other.prompt_tokens,
            self.completion_tokens + other.completion_tokens,
            (self.cost or 0) + (other.cost or 0) if is_known else None,
        )


@dataclass(frozen=True)
class Reply:
    """`json` is set if a schema was asked for: what the text decodes to, not yet checked against the schema."""

    text: str
    json: Any
    usage: Usage
    model: str
    id: str
    finish_reason: str


class Llm(Protocol):
    async def ask(
        self,
        messages: Sequence[Message],
        *,
        model: str,
        schema: type[BaseModel] | None = None,
        max_tokens: int,
    ) -> Reply:
        """One call, which is paid for. Use `structured` where the answer must fit a schema.

        `max_tokens` are of the answer itself; a model that thinks first is allowed some more for that.

        Raises RateLimited, ProviderDown or ProviderRefuses, for which the pool waits; GiveUp where no other try would
        help; or one of errors.py, whose `usage` was paid for.
        """
