"""Assess a script's quality by rules: how easy it is to follow, and what looks wrong."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterator
from math import ceil
from pathlib import Path

from retoma.translations import N_, Translator
from retoma_apps.media.models import Language
from retoma_apps.media.spoken_text import (
    clean_text,
    fold,
    seconds_for_words,
    split_sentences,
    split_words,
    truncate,
    word_count,
)
from retoma_apps.videos.models import Issue, Quality, Script
from retoma_apps.videos.steps.writing.syllables import count_syllables

SECONDS_PER_VISUAL = 75
LONGEST_SENTENCE = 40
LONGEST_NOTE = 200
LENGTH_WARNING, LENGTH_BLOCKING = 0.2, 0.5  # relative differences from the target length
_MIN_READABILITY = 4.0
# Flesch reading ease has another base value in Portuguese, whose words are longer (Martins et al., 1996).
_EASE = {"pt-BR": 248.835, "en": 206.835}
_LEFT_OVER = re.compile(r"[{}]|<<|>>|\*\*|\[[^\]]*\]|\bTODO\b(?!\s+[A-ZÀ-Ý]+\b)|\b(?:TBD|FIXME|XXX)\b|\blorem ipsum\b")
_PAIRS = (("“", "”"), ("«", "»"), ("(", ")"))
_BLOCKING = frozenset({"much_too_long", "much_too_short", "too_few_visuals", "leftover_marks", "no_source", "no_facts"})
_TRANSLATIONS = {"pt-BR": "pt", "en": "en"}
_LOCALE = Path(__file__).parents[2] / "locale"
_MESSAGES = {
    "too_long": N_("The script runs for about %(found)s s; the target is %(wanted)s s."),
    "too_short": N_("The script runs for only about %(found)s s; the target is %(wanted)s s."),
    "much_too_long": N_("The script is far too long: about %(found)s s; the target is %(wanted)s s."),
    "much_too_short": N_("The script is far too short: about %(found)s s; the target is %(wanted)s s."),
    "too_few_visuals": N_("There are %(found)s different visuals; this length needs %(wanted)s."),
    "hard_to_follow": N_("The text is hard to follow by ear: %(found)s out of 10."),
    "long_sentence": N_("A sentence of %(found)s words: “%(text)s”"),
    "repeated_sentence": N_("A sentence repeated %(found)s times: “%(text)s”"),
    "not_understood": N_("Offline, this note was not understood, or only in part: “%(text)s”"),
    "no_source": N_("No source is cited: edit the script and add sources, or send it back to research."),
    "no_facts": N_("The script uses no facts: order a longer video, send it back to research, or write it yourself."),
    "unverified": N_(
        "Sources from the model's memory that were not verified: %(found)s. Check them before you approve."
    ),
    "not_checked": N_(
        "The facts come with Retoma. They were compared with stored copies of their sources, not with the live pages: "
        "%(found)s sources to check."
    ),
    "unbalanced_quotes": N_("Unbalanced quotes or brackets in scene %(found)s."),
    "leftover_marks": N_("A leftover template mark: “%(text)s”"),
}


def assess_quality(script: Script, language: Language, seconds: int | None = None) -> Quality:
    """Assess a script. The length is checked only if `seconds`, the target length, is set; the issues are in the
    script's language."""
    translator = Translator(_TRANSLATIONS[language], [_LOCALE])
    issues = [
        Issue(code=code, text=translator.gettext(_MESSAGES[code], **values), blocking=code in _BLOCKING)
        for code, values in _find_issues(script, language, seconds)
    ]
    return Quality(
        passed=not any(issue.blocking for issue in issues),
        readability_score=readability(script.text, language),
        visual_markers=visual_markers(script),
        issues=issues,
    )


def reading_ease(text: str, language: Language) -> float:
    """Return the Flesch reading ease: about 100 is very easy, below 30 very hard; it has no bounds."""
    found = split_words(text)
    if not found:
        return 0.0
    spoken = sum(count_syllables(word, language) for word in found)
    return _EASE[language] - 1.015 * len(found) / len(split_sentences(text)) - 84.6 * spoken / len(found)


def readability(text: str, language: Language) -> float:
    """Return a score from 0, very hard, to 10, very easy."""
    return round(min(max(reading_ease(text, language) / 10, 0.0), 10.0), 1)


def visual_markers(script: Script) -> int:
    """Count the different pictures."""
    return len({fold(scene.visual) for scene in script.scenes})


def _find_issues(script: Script, language: Language, seconds: int | None) -> Iterator[tuple[str, dict[str, object]]]:
    yield from _length(script, seconds)
    yield from _visuals(script)
    yield from _ease(script, language)
    yield from _sentences(script)
    for note in script.not_understood:
        yield "not_understood", {"text": truncate(clean_text(note), LONGEST_NOTE)}
    yield from _facts(script)
    for number, scene in enumerate(script.scenes, 1):
        if _is_unbalanced(scene.text):
            yield "unbalanced_quotes", {"found": number}
    for mark in sorted(_find_leftover_marks(script)):
        yield "leftover_marks", {"text": mark[:40]}


def _facts(script: Script) -> Iterator[tuple[str, dict[str, object]]]:
    if not script.facts_used:
        yield "no_facts", {}
    if not script.sources:
        yield "no_source", {}
    remembered = sum(source.origin == "model_memory" and not source.verified for source in script.sources)
    if remembered:
        yield "unverified", {"found": remembered}
    if bundled := sum(source.origin == "offline_facts" and not source.verified for source in script.sources):
        yield "not_checked", {"found": bundled}


def _length(script: Script, wanted: int | None) -> Iterator[tuple[str, dict[str, object]]]:
    if wanted is None:
        return
    found = seconds_for_words(word_count(script.text))
    off = found / wanted - 1
    if abs(off) > LENGTH_WARNING:
        far = "much_" if abs(off) > LENGTH_BLOCKING else ""
        yield f"{far}too_{'long' if off > 0 else 'short'}", {"found": round(found), "wanted": wanted}


def _visuals(script: Script) -> Iterator[tuple[str, dict[str, object]]]:
    found, wanted = visual_markers(script), ceil(seconds_for_words(word_count(script.text)) / SECONDS_PER_VISUAL)
    if found < wanted:
        yield "too_few_visuals", {"found": found, "wanted": wanted}


def _ease(script: Script, language: Language) -> Iterator[tuple[str, dict[str, object]]]:
    found = readability(script.text, language)
    if found < _MIN_READABILITY:
        yield "hard_to_follow", {"found": found}


def _sentences(script: Script) -> Iterator[tuple[str, dict[str, object]]]:
    sentences = split_sentences(script.text)
    for each in sentences:
        if (count := word_count(each)) > LONGEST_SENTENCE:
            yield "long_sentence", {"found": count, "text": f"{each[:60]}…"}
    for text, count in Counter(fold(each) for each in sentences).items():
        if count > 1 and word_count(text) > 2:
            yield "repeated_sentence", {"found": count, "text": text[:60]}


def _is_unbalanced(text: str) -> bool:
    return text.count('"') % 2 == 1 or any(text.count(left) != text.count(right) for left, right in _PAIRS)


def _find_leftover_marks(script: Script) -> set[str]:
    visuals = "\n".join(scene.visual for scene in script.scenes)
    return set(_LEFT_OVER.findall("\n".join((script.title, script.text, visuals, script.description))))
