"""Label a text: with a language model, or offline with a model trained from the project's examples."""

from __future__ import annotations

import json
from collections.abc import Sequence
from functools import lru_cache
from typing import TYPE_CHECKING, Annotated, Any, Literal

from pydantic import BaseModel, Field, create_model

from retoma import Context, File
from retoma_apps.classifier.models import Classification, Criteria, Example, Text
from retoma_apps.providers.llm import Example as Known
from retoma_apps.providers.llm import (
    Guess,
    Llm,
    Message,
    OfflineLlm,
    ask_structured,
    make_model_name,
    quote_text,
    quoting_rule,
)

if TYPE_CHECKING:
    from retoma.files import FileStore

LONGEST_TEXT = 24_000  # characters of a document in the prompt
MAX_PROMPT_EXAMPLES = 12
LONGEST_EXAMPLE = 600
MOST_TOKENS = 400
MAX_CACHED_EXAMPLE_FILES = 8  # files of examples
OFFLINE = "offline/tf-idf"


class Labeller:
    """Without `llm` it works offline. It asks the project's model, unless it has a `model` of its own."""

    def __init__(self, files: FileStore, llm: Llm | None = None, model: str | None = None) -> None:
        self._files = files
        self._llm = llm
        self._model = model
        self._examples: dict[str, tuple[list[Example], OfflineLlm]] = {}

    @property
    def name(self) -> str:
        """Return how a chain names it."""
        provider = OFFLINE if self._llm is None else self._llm.name
        return make_model_name(provider, self._model or "project")

    @property
    def is_offline(self) -> bool:
        return self._llm is None

    async def label(self, text: Text, criteria: Criteria, ctx: Context) -> Classification:
        examples, offline = await self._load_examples(criteria.exemplos)
        model = OFFLINE if self._llm is None else self._model or criteria.modelo
        llm = self._llm or offline
        answer = await ask_structured(
            llm,
            build_messages(text.texto, criteria, examples),
            create_answer_model(tuple(category.rotulo for category in criteria.taxonomia)),
            model=model,
            max_tokens=MOST_TOKENS,
            on_usage=lambda usage: usage.charge(ctx, llm.name, model),
        )
        return Classification(**answer.value.model_dump(), modelo=answer.reply.model or model)

    async def _load_examples(self, file: File | None) -> tuple[list[Example], OfflineLlm]:
        """Load examples and a model trained from them. The last few are cached: an execution needs the same thousands
        of times."""
        if file is None:
            return [], _create_offline_llm([])
        if file.file not in self._examples:
            examples = [Example.model_validate(each) for each in json.loads(await self._files.load(file))]
            others = list(self._examples.items())[1 - MAX_CACHED_EXAMPLE_FILES :]
            self._examples = dict(others) | {file.file: (examples, _create_offline_llm(examples))}
        return self._examples[file.file]


def build_messages(text: str, criteria: Criteria, examples: Sequence[Example]) -> list[Message]:
    labels = "\n".join(f"- {category.rotulo}: {category.descricao}".rstrip(": ") for category in criteria.taxonomia)
    shown = "\n\n".join(
        f"{quote_text(example.texto[:LONGEST_EXAMPLE], 'example')}\nRótulo: {example.rotulo}"
        for example in select_examples(examples)
    )
    system = [
        "Você classifica documentos. Responda com exatamente um dos rótulos, a confiança de 0 a 1 e uma frase que a "
        "justifique.",
        criteria.prompt,
        f"Rótulos:\n{labels}",
        quoting_rule(),
        *([quoting_rule("example")] if examples else []),
    ]
    return [
        Message("system", "\n\n".join(part for part in system if part)),
        *([Message("user", f"Exemplos:\n\n{shown}")] if shown else []),
        Message("user", quote_text(text[:LONGEST_TEXT])),
    ]


def select_examples(examples: Sequence[Example]) -> list[Example]:
    """Take examples of each label in turn, so a label with many does not displace others."""
    by_label: dict[str, list[Example]] = {}
    for example in examples:
        by_label.setdefault(example.rotulo, []).append(example)
    turns = max((len(each) for each in by_label.values()), default=0)
    return [each[turn] for turn in range(turns) for each in by_label.values() if turn < len(each)][:MAX_PROMPT_EXAMPLES]


@lru_cache(maxsize=32)
def create_answer_model(labels: tuple[str, ...]) -> type[BaseModel]:
    """Return the schema of the model's answer, which allows only labels of the taxonomy."""
    fields: dict[str, Any] = {
        "rotulo": (Literal[labels], ...),
        "confianca": (Annotated[float, Field(ge=0, le=1)], ...),
        "justificativa": (Annotated[str, Field(max_length=1_000)], ...),
    }
    return create_model("Classificacao", **fields)


def _create_offline_llm(examples: Sequence[Example]) -> OfflineLlm:
    return OfflineLlm([Known(example.texto, example.rotulo) for example in examples], _guess_to_answer)


def _guess_to_answer(guess: Guess) -> dict[str, Any]:
    return {"rotulo": guess.label, "confianca": guess.confidence, "justificativa": ""}
