"""The port for language models: a hosted model, its stand-in, or a small model on this machine."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Literal, Protocol

from pydantic import BaseModel

from retoma import Context
from retoma_apps.providers.provider import EnvironmentProvider

Role = Literal["system", "user", "assistant"]


@dataclass(frozen=True)
class Message:
    """Untrusted text belongs in a user message, quoted with `quote_text`, and never in a system message."""

    role: Role
    content: str


@dataclass(frozen=True)
class Usage:
    """`cost` is in millionths of a US dollar; None means that the provider did not report it, not that it was free."""

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

    def charge(self, ctx: Context, provider: str, model: str) -> None:
        """Record it as a charge of the step."""
        ctx.charge(provider, model, tokens_in=self.prompt_tokens, tokens_out=self.completion_tokens, micros=self.cost)


@dataclass(frozen=True)
class Reply:
    """`json` is set if a schema was requested: the decoded text, not yet validated against the schema."""

    text: str
    json: Any
    usage: Usage
    model: str
    id: str
    finish_reason: str


class Llm(Protocol):
    """`name` is how charges name the provider. `is_offline` if it runs on this machine, without a service: then it
    answers only the tasks of its application, from what comes with Retoma."""

    name: str
    is_offline: bool

    async def ask(
        self,
        messages: Sequence[Message],
        *,
        model: str,
        schema: type[BaseModel] | None = None,
        max_tokens: int,
    ) -> Reply:
        """Make one paid call. Use `ask_structured` if the answer must fit a schema.

        `max_tokens` limits the answer itself; reasoning models get an additional allowance.

        Raise RateLimited, ProviderDown or ProviderRejected to pause the pool; GiveUp if a retry would not help; or an
        error from errors.py, whose `usage` was paid for.
        """


class LlmProvider(Llm, EnvironmentProvider, Protocol):
    """What a class needs to be registered."""
