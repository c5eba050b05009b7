"""Request answers that must fit a pydantic model, validate them, and repair them once."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Generic, TypeVar

from pydantic import BaseModel, ValidationError

from retoma_apps.providers.llm.errors import InvalidJson, LlmError, LlmRefused
from retoma_apps.providers.llm.port import Llm, Message, Reply, Usage
from retoma_apps.providers.llm.prompts import quote_text

M = TypeVar("M", bound=BaseModel)
_MOST_MISTAKES = 10
_LONGEST_ANSWER = 8_000


@dataclass(frozen=True)
class StructuredReply(Generic[M]):
    """`usage` is the total of all calls."""

    value: M
    reply: Reply
    usage: Usage


async def ask_structured(
    llm: Llm,
    messages: Sequence[Message],
    schema: type[M],
    *,
    model: str,
    max_tokens: int,
    repairs: int = 1,
    on_usage: Callable[[Usage], None] | None = None,
) -> StructuredReply[M]:
    """Ask, validate the answer, and ask again with the mistakes, at most `repairs` times.

    Raise what `ask` does, or InvalidJson if the last answer was invalid too. The error's `usage` is the total of all
    calls. A repair may raise RateLimited, which has no usage, so `on_usage` receives each call's usage immediately.
    """
    conversation, usage = list(messages), _UsageTotal(on_usage)
    for repair in range(repairs + 1):
        try:
            reply = await llm.ask(conversation, model=model, schema=schema, max_tokens=max_tokens)
            usage.add(reply.usage)
            return StructuredReply(_validate(reply, schema), reply, usage.total)
        except InvalidJson as error:
            usage.add(error.usage)
            if repair == repairs:
                raise InvalidJson(f"{error} ({repair + 1} answers)", error.text, usage=usage.total) from error
            conversation = [*messages, *_correction_messages(error)]
        except (LlmError, LlmRefused) as error:
            usage.add(error.usage)
            error.usage = usage.total
            raise
    raise AssertionError("the last round returns or raises")


class _UsageTotal:
    """Sums the usage of all calls and reports each one to `on_usage`."""

    def __init__(self, on_usage: Callable[[Usage], None] | None) -> None:
        self.total = Usage()
        self._on_usage = on_usage

    def add(self, usage: Usage) -> None:
        self.total += usage
        if self._on_usage is not None and usage != Usage():
            self._on_usage(usage)


def _validate(reply: Reply, schema: type[M]) -> M:
    """Validate the answer. Its usage is already counted, so the error carries none."""
    try:
        return schema.model_validate(reply.json)
    except ValidationError as error:
        raise InvalidJson(f"the model's answer does not fit: {_format_mistakes(error)}", reply.text) from error


def _format_mistakes(error: ValidationError) -> str:
    """Describe where and what, without values: they come from the model and may repeat untrusted text."""
    found = error.errors(include_url=False, include_context=False, include_input=False)
    mistakes = [
        f"{'.'.join(str(part)[:40] for part in each['loc']) or 'the answer'}: {each['msg'][:200]}" for each in found
    ]
    return "; ".join(mistakes[:_MOST_MISTAKES])


def _correction_messages(error: InvalidJson) -> list[Message]:
    """Quote the mistakes as untrusted text: field names in them come from the model."""
    return [
        Message("assistant", error.text[:_LONGEST_ANSWER]),
        Message(
            "user",
            "That answer cannot be used. Answer the same question again, with nothing but one JSON object that fits "
            f"the schema. What was wrong with it:\n{quote_text(str(error), 'mistakes')}",
        ),
    ]
