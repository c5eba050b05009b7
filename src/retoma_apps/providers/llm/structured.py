"""Answers that must fit a pydantic model: checked, and repaired once."""

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
    """`usage` is of all calls."""

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
    """Ask, check the answer, and ask again with what was wrong, at most `repairs` times.

    Raises what `ask` does; InvalidJson if the last answer was wrong too. The `usage` of the error is of all calls. A
    repair may meet RateLimited, which has none, so `paid` is told the usage of each call at once, whatever follows.
    """
    asked, bill = list(messages), _UsageTotal(on_usage)
    for repair in range(repairs + 1):
        try:
            reply = await llm.ask(asked, model=model, schema=schema, max_tokens=max_tokens)
            bill.add(reply.usage)
            return StructuredReply(_validate(reply, schema), reply, bill.total)
        except InvalidJson as error:
            bill.add(error.usage)
            if repair == repairs:
                raise InvalidJson(f"{error} ({repair + 1} answers)", error.text, usage=bill.total) from error
            asked = [*messages, *_correction_messages(error)]
        except (LlmError, LlmRefused) as error:
            bill.add(error.usage)
            error.usage = bill.total
            raise
    raise AssertionError("the last round returns or raises")


class _UsageTotal:
    """What all calls have cost, told one by one to who pays."""

    def __init__(self, on_usage: Callable[[Usage], None] | None) -> None:
        self.total = Usage()
        self._on_usage = on_usage

    def add(self, usage: Usage) -> None:
        self.total += usage
        if self._on_usage is not None and usage != Usage():
            self._on_usage(usage)


def _validate(reply: Reply, schema: type[M]) -> M:
    """What it cost is counted already, so the error carries no usage."""
    try:
        return schema.model_validate(reply.json)
    except ValidationError as error:
        raise InvalidJson(f"the model's answer does not fit: {_format_mistakes(error)}", reply.text) from error


def _format_mistakes(error: ValidationError) -> str:
    """Where and what, without the values: these are of the model, and so perhaps of a stranger."""
    found = error.errors(include_url=False, include_context=False, include_input=False)
    said = [f"{'.'.join(str(part)[:40] for part in each['loc']) or 'the whole'}: {each['msg'][:200]}" for each in found]
    return "; ".join(said[:_MOST_MISTAKES])


def _correction_messages(error: InvalidJson) -> list[Message]:
    """Names of fields in the mistakes are the model's own, so they are marked as a stranger's text is."""
    return [
        Message("assistant", error.text[:_LONGEST_ANSWER]),
        Message(
            "user",
            "That answer cannot be used. Answer the same question again, with nothing but one JSON object that fits "
            f"the schema. What was wrong with it:\n{quote_text(str(error), 'mistakes')}",
        ),
    ]
