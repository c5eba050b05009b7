"""General facts about a few topics for the offline writer, each with its source and a picture."""

from __future__ import annotations

from retoma_apps.videos.models import Fact, Language, Source
from retoma_apps.videos.steps.spoken_text import fold
from retoma_apps.videos.steps.writing.offline_texts import SCRIPT_TEXTS

_VISUALS = {
    fold(fact.text): fact.visual
    for texts in SCRIPT_TEXTS.values()
    for sheet in texts.fact_sheets
    for fact in sheet.facts
}


def find_facts(topic: str, language: Language) -> list[Fact]:
    """Return facts about the topic; none for most topics: nothing is made up."""
    folded, texts = f" {fold(topic)} ", SCRIPT_TEXTS[language]
    found = []
    for sheet in texts.fact_sheets:
        if any(f" {keyword} " in folded for keyword in sheet.keywords):
            source = Source(name=f"{sheet.source} ({texts.source_suffix})", url=sheet.url, origin="offline_facts")
            found += [Fact(text=fact.text, source=source) for fact in sheet.facts]
    return found


def find_visual(fact: Fact) -> str | None:
    return _VISUALS.get(fold(fact.text))
