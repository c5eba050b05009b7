"""Briefs, facts and scripts for the tests of writing, and a model with scripted answers."""

from __future__ import annotations

import json
from collections.abc import Sequence
from typing import Any

from pydantic import BaseModel

from retoma_apps.media.models import Language
from retoma_apps.providers.llm import Message, Reply, Usage
from retoma_apps.videos.models import Brief, Fact, Scene, Script, Source

PAID = Usage(100, 50, 7)
SOURCE = Source(name="Enciclopédia", url="https://example.org/a", confidence=0.9)


def make_brief(topic: str = "Fotossíntese", language: Language = "pt-BR", seconds: int = 60, style: str = "") -> Brief:
    return Brief(topic=topic, language=language, seconds=seconds, style=style)


def make_fact(text: str = "A lua gira em torno da Terra.", source: Source = SOURCE) -> Fact:
    return Fact(text=text, source=source)


def make_script(*texts: str, visual: str = "céu azul", sources: Sequence[Source] = (SOURCE,)) -> Script:
    scenes = [Scene(text=text, visual=f"{visual} {number}") for number, text in enumerate(texts)]
    return Script(title="Céu", scenes=scenes, sources=list(sources), facts_used=len(sources))


def make_sentences(count: int, words: int = 10) -> str:
    """Return so many different sentences of easy words."""
    return " ".join(f"Frase {number} {'casa ' * (words - 3)}bela." for number in range(count))


class ScriptedLlm:
    """Returns these answers in turn and records its messages."""

    name = "scripted"
    is_offline = False

    def __init__(self, *answers: Any) -> None:
        self.answers = list(answers)
        self.asked: list[list[Message]] = []
        self.max_tokens = 0

    async def ask(
        self,
        messages: Sequence[Message],
        *,
        model: str,
        schema: type[BaseModel] | None = None,
        max_tokens: int,
    ) -> Reply:
        self.asked.append(list(messages))
        self.max_tokens = max_tokens
        answer = self.answers.pop(0)
        return Reply(json.dumps(answer), answer, PAID, model, "1", "stop")
