"""The pages about the architecture name files, functions and fields that exist, and every decision has a status."""

from __future__ import annotations

import re
from collections.abc import Iterator
from functools import cache
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
DOCS = ROOT / "docs"
RETOMA = ROOT / "src" / "retoma"
FUNCTIONS = RETOMA / "store" / "sql" / "functions"
DECISIONS = sorted((DOCS / "decisions").glob("*.md"))
PAGES = [DOCS / "architecture.md", *sorted((DOCS / "architecture").glob("*.md")), DOCS / "state-machines.md"]
BASES = (RETOMA, ROOT / "src", ROOT, RETOMA / "store" / "sql", FUNCTIONS)
CODE_FOLDERS = ("src", "standins", "bench", "tools")
CODE_SUFFIXES = (".py", ".sql", ".yml", ".js", ".html")

WORD = re.compile(r"`([^`\n]+)`")
FILE = re.compile(r"[\w./-]+\.(?:py|sql|html|js|css|po|toml|ya?ml|json)")
FOLDER = re.compile(r"[\w-]+(?:/[\w-]+)*/")
NAME = re.compile(r"\b(?:_?[a-z0-9]+(?:_[a-z0-9]+)+|[A-Z][a-z]+(?:[A-Z][a-z]+)+|[A-Z]+(?:_[A-Z]+)+)\b")
STATUS = re.compile(r"# \d+\. .+\n\n\*\*Status\.\*\* Accepted on \d{4}-\d{2}-\d{2}\.")

every_page = pytest.mark.parametrize("page", PAGES, ids=lambda page: page.stem)


@every_page
def test_every_file_that_an_architecture_page_names_exists(page: Path) -> None:
    files = [word for word in read_code_words(page) if FILE.fullmatch(word) or FOLDER.fullmatch(word)]
    assert files
    assert [file for file in files if not does_exist(file)] == []


@every_page
def test_every_name_on_an_architecture_page_is_in_the_code(page: Path) -> None:
    words = [word for word in read_code_words(page) if not FILE.fullmatch(word)]
    named = {name for word in words for name in NAME.findall(word)}
    assert named
    assert named - read_names_of_code() == set()


@pytest.mark.parametrize("page", DECISIONS, ids=lambda page: page.stem[:4])
def test_a_decision_begins_with_its_status_and_date(page: Path) -> None:
    assert STATUS.match(page.read_text())


def test_the_index_says_which_decisions_are_superseded() -> None:
    superseded = {page.name for page in DECISIONS if "Superseded by" in page.read_text()}
    index = (DOCS / "README.md").read_text()
    assert set(re.findall(r"\(decisions/(.+\.md)\) \(superseded by \d+\)$", index, re.MULTILINE)) == superseded


def read_code_words(page: Path) -> Iterator[str]:
    """Yield what is in code font, without the blocks."""
    yield from WORD.findall(re.sub(r"^ *```.*?^ *```$", "", page.read_text(), flags=re.MULTILINE | re.DOTALL))


def does_exist(file: str) -> bool:
    """Return whether there is such a file. One without a folder, other than SQL, may be anywhere in the source."""
    if any((base / file).exists() for base in BASES):
        return True
    is_bare = "/" not in file and not file.endswith(".sql")
    return is_bare and any(path for folder in CODE_FOLDERS for path in (ROOT / folder).rglob(file))


@cache
def read_names_of_code() -> set[str]:
    texts = [
        path.read_text()
        for folder in (*CODE_FOLDERS, "deploy")
        for path in (ROOT / folder).rglob("*")
        if path.suffix in CODE_SUFFIXES
    ]
    return {word for text in texts for word in re.findall(r"\w+", text)}
