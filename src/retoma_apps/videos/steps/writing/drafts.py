"""Turn a draft into a script: cleaned, with word count and sources."""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence

from retoma_apps.media.spoken_text import clean_text, fold, truncate
from retoma_apps.videos.models import Brief, Fact, Scene, Script, Source

MOST_TAGS = 15
_LONGEST_TAG = 60
_LONGEST_TITLE = 100
_LONGEST_DESCRIPTION = 4500
_BRACKETS = re.compile("[<>]")  # YouTube rejects them in titles and descriptions


def build_script(
    brief: Brief,
    *,
    title: str,
    scenes: Sequence[Scene],
    description: str,
    tags: Sequence[str],
    facts: Sequence[Fact],
    seconds: int | None = None,
    not_understood: Sequence[str] = (),
) -> Script:
    """`facts` are those that the scenes use, `seconds` is the target length if not the brief's, and `not_understood` is
    feedback that it does not follow. Raise ValueError if no text is left."""
    return Script(
        topic=brief.topic,
        language=brief.language,
        seconds=seconds or brief.seconds,
        title=truncate(_plain(title), _LONGEST_TITLE) or truncate(_plain(brief.topic), _LONGEST_TITLE),
        scenes=[Scene(text=clean_text(scene.text), visual=_plain(scene.visual) or "…") for scene in scenes],
        description="\n".join(_plain(line) for line in description.splitlines())[:_LONGEST_DESCRIPTION],
        tags=list(_distinct(truncate(_plain(tag).replace(",", ""), _LONGEST_TAG) for tag in tags))[:MOST_TAGS],
        sources=_distinct_sources(facts),
        facts_used=len(facts),
        facts=[fact.text for fact in facts],
        not_understood=list(not_understood),
    )


def select_new_facts(facts: Iterable[Fact], known: Iterable[Fact]) -> list[Fact]:
    """Return the facts that repeat no earlier one."""
    seen = {fold(fact.text) for fact in known}
    new = []
    for fact in facts:
        if (folded := fold(fact.text)) not in seen:
            seen.add(folded)
            new.append(fact)
    return new


def _distinct_sources(facts: Sequence[Fact]) -> list[Source]:
    """Return each source once, with the highest confidence of its facts."""
    best: dict[tuple[str, str], Source] = {}
    for source in (fact.source for fact in facts):
        key = (source.name, source.url)
        if key not in best or best[key].confidence < source.confidence:
            best[key] = source
    return list(best.values())


def _distinct(texts: Iterable[str]) -> Iterable[str]:
    return {fold(text): text for text in texts if fold(text)}.values()


def _plain(text: str) -> str:
    return clean_text(_BRACKETS.sub("", text))
