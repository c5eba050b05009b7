"""The offline implementation of a labelling model: TF-IDF and a linear model, trained from examples on this machine.

The same examples always produce the same model. It knows only the labels of its examples, so its accuracy is measured
and reported instead of assumed.
"""

from __future__ import annotations

import asyncio
import json
import re
import threading
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import lru_cache
from hashlib import sha256
from typing import Any

from pydantic import BaseModel

from retoma import GiveUp
from retoma_apps.providers.llm.port import Message, Reply, Usage
from retoma_apps.providers.llm.prompts import find_quoted_text
from retoma_apps.providers.llm.registry import PROVIDERS
from retoma_apps.providers.provider import format_variables

MODEL = "offline/tf-idf"
_MOST_WORDS = 100_000
_LONGEST_TEXT = 200_000
_FOLDS = 5
_SEED = 0
_WORD = re.compile(r"\w+")


@dataclass(frozen=True)
class Example:
    text: str
    label: str


@dataclass(frozen=True)
class Guess:
    """`confidence` is from 0 to 1, among the labels that the model knows."""

    label: str
    confidence: float


@dataclass(frozen=True)
class Accuracy:
    """The share of correct labels for `examples` that the model had not seen, in `folds` rounds.

    A label with one example cannot be tested this way; such labels are in `untested`.
    """

    share: float
    examples: int
    folds: int
    untested: tuple[str, ...] = ()


class OfflineModel:
    """Create it with `get_trained_model`, which caches the last few."""

    def __init__(self, examples: Sequence[Example]) -> None:
        self._texts = [example.text[:_LONGEST_TEXT] for example in examples]
        self._labels = [example.label for example in examples]
        self.labels = sorted(set(self._labels))
        self._classifier = _classifier() if len(self.labels) > 1 else None
        if self._classifier is not None:
            self._classifier.fit(self._texts, self._labels)

    def guess(self, text: str) -> Guess:
        if self._classifier is None:
            return Guess(self.labels[0], 0.0)  # it knows no other label, so the guess means nothing
        [shares] = self._classifier.predict_proba([text[:_LONGEST_TEXT]])
        best = max(range(len(shares)), key=lambda index: float(shares[index]))
        return Guess(str(self._classifier.classes_[best]), round(float(shares[best]), 4))

    def accuracy(self) -> Accuracy | None:
        """Measure by cross-validation, which retrains a few times. None if fewer than two labels can be tested."""
        counts = Counter(self._labels)
        tested = {label for label, count in counts.items() if count > 1}
        if len(tested) < 2:
            return None
        folds = min(_FOLDS, *(counts[label] for label in tested))
        chosen = [index for index, label in enumerate(self._labels) if label in tested]
        right = _count_correct(
            [self._texts[index] for index in chosen], [self._labels[index] for index in chosen], folds
        )
        return Accuracy(round(right / len(chosen), 4), len(chosen), folds, tuple(sorted(set(counts) - tested)))


def get_trained_model(examples: Sequence[Example]) -> OfflineModel:
    """Return the model for these examples, in any order. Raise GiveUp if the examples contain no words."""
    with_words = {example for example in examples if _WORD.search(example.text)}
    if not with_words:
        raise GiveUp(
            f"the offline model needs examples to learn from: add some, or set {format_variables(PROVIDERS)}",
            "NO_EXAMPLES",
        )
    return _cached_model(tuple(sorted(with_words, key=lambda example: (example.label, _digest(example.text)))))


@lru_cache(maxsize=8)
def _cached_model(examples: tuple[Example, ...]) -> OfflineModel:
    return OfflineModel(examples)


def _guess_to_label(guess: Guess) -> dict[str, Any]:
    return {"label": guess.label, "confidence": guess.confidence}


class OfflineLlm:
    """Labels the last quoted document of a conversation. `answer` converts a guess to the requested schema."""

    name = "offline"
    is_offline = True

    def __init__(
        self, examples: Sequence[Example], answer: Callable[[Guess], dict[str, Any]] = _guess_to_label
    ) -> None:
        self._examples = tuple(examples)
        self._answer = answer
        self._training = threading.Lock()
        self._model: OfflineModel | None = None

    async def ask(
        self,
        messages: Sequence[Message],
        *,
        model: str = MODEL,
        schema: type[BaseModel] | None = None,
        max_tokens: int = 0,
    ) -> Reply:
        """Answer at no cost and without counting tokens. `model` and `max_tokens` have no effect."""
        text = find_quoted_text(messages)
        if text is None:
            raise GiveUp("the offline model found no quoted document in its messages", "LLM_BAD_REQUEST")
        answer = self._answer(await asyncio.to_thread(self._guess, text))
        written = json.dumps(answer, ensure_ascii=False)
        return Reply(written, answer if schema else None, Usage(), MODEL, f"offline-{_digest(text)}", "stop")

    async def accuracy(self) -> Accuracy | None:
        return await asyncio.to_thread(lambda: get_trained_model(self._examples).accuracy())

    def _guess(self, text: str) -> Guess:
        with self._training:  # train once, even for concurrent calls
            self._model = self._model or get_trained_model(self._examples)
        return self._model.guess(text)


def _classifier() -> Any:
    """Use words and pairs of words without accents, so a scan that lost its accents gives the same features."""
    try:
        from sklearn.feature_extraction.text import TfidfVectorizer
        from sklearn.linear_model import LogisticRegression
        from sklearn.pipeline import make_pipeline
    except ImportError as error:
        raise GiveUp("the offline model needs scikit-learn: install retoma[classifier]", "NOT_INSTALLED") from error
    return make_pipeline(
        TfidfVectorizer(
            strip_accents="unicode",
            token_pattern=_WORD.pattern,
            ngram_range=(1, 2),
            sublinear_tf=True,
            max_features=_MOST_WORDS,
        ),
        LogisticRegression(C=20.0, class_weight="balanced", max_iter=1000, random_state=_SEED),
    )


def _count_correct(texts: list[str], labels: list[str], folds: int) -> int:
    from sklearn.model_selection import StratifiedKFold

    right = 0
    for learn, check in StratifiedKFold(folds, shuffle=True, random_state=_SEED).split(texts, labels):
        model = _classifier().fit([texts[index] for index in learn], [labels[index] for index in learn])
        predicted = model.predict([texts[index] for index in check])
        right += sum(str(one) == labels[index] for one, index in zip(predicted, check, strict=True))
    return right


def _digest(text: str) -> str:
    return sha256(text.encode(errors="replace")).hexdigest()[:16]
