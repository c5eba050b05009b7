"""Portuguese belongs in the catalogues: code holds English messages, and Portuguese only as data."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from fnmatch import fnmatch
from pathlib import Path

import pytest

SOURCE = Path(__file__).parents[3] / "src"
PORTUGUESE_LETTERS = re.compile("[ãõçâêôàáéíóú]", re.IGNORECASE)
LANGUAGE_KEYS = ("pt", "pt-BR", "pt_BR")
LANGUAGE_NAME = "Brazilian Portuguese"
# Files of `src` with Portuguese that is not a message: content, prompts, and rules about the language itself.
CONTENT = (
    "retoma/demo.py",  # the story that the demo tells
    "pages/formats.py",  # formats of dates
    "notifications/content.py",  # formats of dates
    "videos*/demo.py",  # the topic of the demo video
    "autowriter/demo.py",  # the blog and the articles of the demo
    "stories/demo.py",  # the topic of the demo story
    "labelling.py",  # the prompt
    "classifier*/exports.py",  # values of the seed's CSV
    "classifier/models.py",  # an example of a project
    "gpu/models.py",  # an example of a caption
    "youtube/text_limits.py",  # the title of a video without one
    "autowriter/steps/language.py",  # the common words of each language
    "autowriter/steps/payload.py",  # headings of posts, in the language of the post
)
LANGUAGE_RULES = (
    "autowriter/steps/csv_file.py",
    "autowriter/steps/texts.py",
    "chunks.py",
    "content_words.py",
    "feedback_checks.py",
    "headlines.py",
    "narration.py",
    "quality.py",
    "spoken_text.py",
    "syllables.py",
)


def iterate_strings(tree: ast.AST) -> Iterator[ast.Constant]:
    """Yield the string literals that are not docstrings."""
    docstrings = {id(node.value) for node in ast.walk(tree) if isinstance(node, ast.Expr)}
    for node in ast.walk(tree):
        if isinstance(node, ast.Constant) and isinstance(node.value, str) and id(node) not in docstrings:
            yield node


def iterate_texts_by_language(tree: ast.AST) -> Iterator[ast.Dict]:
    """Yield the dictionaries that hold a sentence for Portuguese."""
    for node in ast.walk(tree):
        if isinstance(node, ast.Dict):
            for key, value in zip(node.keys, node.values, strict=True):
                is_language = isinstance(key, ast.Constant) and key.value in LANGUAGE_KEYS
                if is_language and any(_is_sentence(each) for each in iterate_strings(value)):
                    yield node


def _is_sentence(literal: ast.Constant) -> bool:
    return " " in str(literal.value) and literal.value != LANGUAGE_NAME


def find_portuguese(code: str, *, has_rules: bool = False) -> list[int]:
    """Return the lines of messages in Portuguese. A file with rules about the language may have single words."""
    tree = ast.parse(code)
    found = [] if has_rules else [each for each in iterate_strings(tree) if PORTUGUESE_LETTERS.search(str(each.value))]
    return sorted({each.lineno for each in [*found, *iterate_texts_by_language(tree)]})


def is_one_of(file: Path, patterns: tuple[str, ...]) -> bool:
    return any(fnmatch(file.as_posix(), f"*/{pattern}") for pattern in patterns)


def test_code_has_no_message_in_portuguese() -> None:
    problems = [
        f"{file.relative_to(SOURCE)}:{line}"
        for file in sorted(SOURCE.rglob("*.py"))
        if not is_one_of(file, CONTENT)
        for line in find_portuguese(file.read_text(), has_rules=is_one_of(file, LANGUAGE_RULES))
    ]
    assert problems == []


@pytest.mark.parametrize(
    ("code", "lines"),
    [
        ('"""Não é mensagem."""\nx = "no message"', []),
        ('x = 1\nraise Error("não existe")', [2]),
        ('x = f"{name} não existe"', [1]),
        ('Field(json_schema_extra={"pt": {"title": "Nome completo"}})', [1]),
        ('TEXTS = {"en": "was ordered", "pt": "foi pedido"}', [1]),
        ('PACES = {"en": 70, "pt": 65, "pt-BR": "pt"}', []),
    ],
)
def test_messages_in_portuguese_are_found(code: str, lines: list[int]) -> None:
    assert find_portuguese(code) == lines


@pytest.mark.parametrize("pattern", [*CONTENT, *LANGUAGE_RULES])
def test_every_exception_is_still_needed(pattern: str) -> None:
    files = [file for file in SOURCE.rglob("*.py") if is_one_of(file, (pattern,))]
    assert any(find_portuguese(file.read_text()) for file in files)
