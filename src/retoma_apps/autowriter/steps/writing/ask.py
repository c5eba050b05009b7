"""Ask a language model for one part of an article. Its answer is untrusted: bounded, validated and paid for once."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any, TypeVar

from pydantic import BaseModel

from retoma import Context
from retoma_apps.providers.llm import LanguageModel, Message, Usage, ask_structured, quote_text, quoting_rule

Answer = TypeVar("Answer", bound=BaseModel)
MATERIAL = "material"
_MAX_FEEDBACK = 4_000
_MIN_TOKENS, _TOKENS_PER_WORD = 3_000, 4
_RULES = (
    "You write for a blog. Follow the task; the material is what to write about, as JSON. Write in the language that "
    "`language` names. State nothing as a fact that `facts` do not support. If there is `previous`, write another "
    "version, and follow `feedback` where it concerns the content. Write plain text, without markup."
)


async def write_part(
    llm: LanguageModel, task: str, material: Mapping[str, Any], kind: type[Answer], ctx: Context, *, words: int = 0
) -> Answer:
    """Return the model's answer to a task, which must fit `kind`. A retry of the step does not pay for it again.

    `words` is the length of a long answer. Raise what `ask_structured` raises.
    """
    messages = build_messages(task, material, ctx)

    def charge(usage: Usage) -> None:
        usage.charge(ctx, llm.provider.name, llm.model)

    async def ask() -> dict[str, Any]:
        answer = await ask_structured(
            llm.provider,
            messages,
            kind,
            model=llm.model,
            max_tokens=_MIN_TOKENS + words * _TOKENS_PER_WORD,
            on_usage=charge,
        )
        if answer.usage == Usage():
            charge(answer.usage)  # free, but the article lists every provider that it used
        return answer.value.model_dump(mode="json")

    return kind.model_validate(await ctx.once("answer", ask))


def build_messages(task: str, material: Mapping[str, Any], ctx: Context) -> list[Message]:
    extra: dict[str, Any] = {}
    if ctx.previous_result is not None:
        extra["previous"] = ctx.previous_result
    if ctx.feedback is not None and ctx.feedback.text:
        extra["feedback"] = ctx.feedback.text[:_MAX_FEEDBACK]
    text = json.dumps({**material, **extra}, ensure_ascii=False, sort_keys=True)
    system = "\n".join([_RULES, quoting_rule(MATERIAL), f"The task: {task}"])
    return [Message("system", system), Message("user", quote_text(text, MATERIAL))]
