"""Comments, messages and pages use the terms of the field. These folk phrases have one that always fits better."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
FOLDERS = ("src", "docs", "tests", "bench", "examples", "standins", "tools", "deploy", "wordpress")
SUFFIXES = {".py", ".sql", ".md", ".html", ".js", ".css", ".php", ".yml", ".yaml", ".toml", ".sh"}
INSTEAD = {
    r"(?:made|make|makes|making|done) anew|made again": "rerun, retried, repeated",
    r"(?:goes|go|went) on": "continues",
    r"whoever": "the person, the caller, the operator",
    r"outside work|work outside": "external work",
    r"told as|heard of": "reported, received",
    r"stands? still|stood still": "is stuck, is frozen",
    r"is away|are away": "is unreachable",
    r"is owed|are owed|made good|puts? right": "is pending, resolved, fixed",
    r"signs? of life|its heart beats|(?:is|are) buried|undertaker": "heartbeat, deregister, reap",
}
FOLK = re.compile(rf"\b(?:{'|'.join(INSTEAD)})\b", re.IGNORECASE)


@pytest.mark.parametrize("folder", FOLDERS)
def test_no_folk_phrase_stands_for_a_term(folder: str) -> None:
    files = [path for path in (ROOT / folder).rglob("*") if path.suffix in SUFFIXES and _is_ours(path)]
    found = [each for path in files for each in _find_folk_phrases(path)]
    assert found == []


def test_no_folk_phrase_stands_for_a_term_in_the_pages_of_the_project() -> None:
    assert [each for path in sorted(ROOT.glob("*.md")) for each in _find_folk_phrases(path)] == []


def _is_ours(path: Path) -> bool:
    """Released migrations are never changed, not even their comments."""
    return path != Path(__file__) and not {"migrations", "node_modules", "vendor"} & set(path.parts)


def _find_folk_phrases(path: Path) -> list[str]:
    text = path.read_text(errors="replace")
    return [
        f"{path.relative_to(ROOT)}:{text.count(chr(10), 0, match.start()) + 1}: {match[0]}"
        for match in FOLK.finditer(text)
    ]
