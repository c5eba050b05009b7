"""The offline writer: it arranges bundled facts into an article, and refuses themes about which it has none.

The same material always produces the same answer. A rerun produces the next variant, if there is one.
"""

from __future__ import annotations

import json
import tomllib
from collections.abc import Callable, Sequence
from functools import cache
from pathlib import Path
from typing import Any

from pydantic import BaseModel

from retoma.errors import InvalidInput
from retoma.translations import N_
from retoma_apps.autowriter.models import (
    FEATURED,
    ArticleRequest,
    BriefDraft,
    Content,
    Fact,
    Faq,
    FrozenModel,
    Heading,
    Headings,
    ImagePrompt,
    ImagePrompts,
    Meta,
    Outline,
    OutlineSection,
    Question,
    SectionText,
    Tags,
    TitleDraft,
)
from retoma_apps.autowriter.steps.texts import count_words, fold, truncate
from retoma_apps.autowriter.steps.writing.ask import MATERIAL
from retoma_apps.providers import llm
from retoma_apps.providers.llm import LanguageModel, Message, Reply, Usage
from retoma_apps.providers.llm.errors import LlmRefused
from retoma_apps.providers.llm.prompts import find_quoted_text
from retoma_apps.providers.provider import format_variables

MODEL = "offline/facts"
FACTS_PER_PARAGRAPH = 2
_FOLDER = Path(__file__).parent / "offline"
_LANGUAGES = ("en", "pt-BR")
_TITLE_LENGTH, _DESCRIPTION_LENGTH = 65, 160
NO_MODEL = N_(
    "no model configured: set %(variables)s. Without one, only a few bundled themes can be written, and there are no "
    "facts about “%(theme)s” in %(language)s"
)


class SheetSection(FrozenModel):
    id: str
    topic: str
    heading: str
    facts: tuple[Fact, ...]


class Sheet(FrozenModel):
    """Facts about a theme. `keywords` are folded words, any of which selects the sheet."""

    keywords: tuple[str, ...]
    tags: tuple[str, ...]
    sections: tuple[SheetSection, ...]


class Texts(FrozenModel):
    """What the writer says in one language. FOCUS, TOPIC and COUNT are replaced."""

    titles: tuple[str, ...]
    introductions: tuple[str, ...]
    conclusion: str
    description: str
    angle: str
    question: str
    image: str
    featured: str
    themes: tuple[Sheet, ...]


@cache
def load_texts(language: str) -> Texts:
    return Texts.model_validate(tomllib.loads((_FOLDER / f"{language}.toml").read_text("utf-8")))


class NeedsLanguageModel(InvalidInput):
    """There are no facts about the theme, and no language model is configured. `values` are those of the message."""

    code = "NO_MODEL"

    def __init__(self, theme: str, language: str) -> None:
        self.values = {"variables": format_variables(llm.PROVIDERS), "theme": theme[:120], "language": language}
        super().__init__(NO_MODEL, **self.values)


class OfflineWriter:
    """Costs nothing. It answers the tasks of this application only."""

    name = "offline"
    is_offline = True

    async def ask(
        self, messages: Sequence[Message], *, model: str, schema: type[BaseModel] | None = None, max_tokens: int
    ) -> Reply:
        text = find_quoted_text(messages, MATERIAL)
        if text is None or schema not in _WRITERS:
            raise LlmRefused("the offline writer only knows the tasks of AutoWriter", "NO_MODEL")
        material = json.loads(text)
        answer = _WRITERS[schema](material, *_find_sheet(material)).model_dump(mode="json")
        return Reply(json.dumps(answer), answer, Usage(), model, "", "stop")


def list_themes() -> list[tuple[str, str]]:
    """Return each theme about which there are facts, with its language. An article's theme has to contain its word."""
    return [(sheet.tags[0], language) for language in _LANGUAGES for sheet in load_texts(language).themes]


def list_bundled_facts(language: str) -> list[Fact]:
    """Return the facts of all themes in this language."""
    themes = load_texts(language).themes if language in _LANGUAGES else ()
    return [fact for sheet in themes for section in sheet.sections for fact in section.facts]


def find_theme_problem(model: LanguageModel, request: ArticleRequest) -> NeedsLanguageModel | None:
    """Return why this model cannot write the article, or None. Only an offline model knows some themes only."""
    if not model.provider.is_offline or _match_sheet(request.theme, request.language) is not None:
        return None
    return NeedsLanguageModel(request.theme, request.language)


def _find_sheet(material: dict[str, Any]) -> tuple[Texts, Sheet]:
    """Return the texts of the language and the sheet of the theme. Raise LlmRefused if there is none."""
    theme, language = str(material["theme"]), str(material["language"])
    if (sheet := _match_sheet(theme, language)) is None:
        raise LlmRefused(str(NeedsLanguageModel(theme, language)), NeedsLanguageModel.code)
    return load_texts(language), sheet


def _match_sheet(theme: str, language: str) -> Sheet | None:
    if language not in _LANGUAGES:
        return None
    words = set(fold(theme).split())
    return next((sheet for sheet in load_texts(language).themes if words & set(sheet.keywords)), None)


def _write_brief(material: dict[str, Any], texts: Texts, sheet: Sheet) -> BriefDraft:
    facts = [fact for section in sheet.sections for fact in section.facts]
    return BriefDraft(angle=_fill(texts.angle, material["theme"]), audience=material["audience"], facts=facts)


def _write_outline(material: dict[str, Any], texts: Texts, sheet: Sheet) -> Outline:
    numbers = {fact["text"]: number for number, fact in enumerate(material["facts"], 1)}
    sections = [
        OutlineSection(
            id=section.id,
            topic=section.topic,
            facts=[numbers[fact.text] for fact in section.facts if fact.text in numbers],
        )
        for section in sheet.sections
    ]
    return Outline(sections=sections)


def _write_title(material: dict[str, Any], texts: Texts, sheet: Sheet) -> TitleDraft:
    titles = [_fill(text, material["keyword"]) for text in texts.titles]
    previous = (material.get("previous") or {}).get("title")
    return TitleDraft(title=_next_variant(titles, previous))


def _write_meta(material: dict[str, Any], texts: Texts, sheet: Sheet) -> Meta:
    counts = {"COUNT_SECTIONS": len(sheet.sections), "COUNT": sum(len(each.facts) for each in sheet.sections)}
    description = _fill(texts.description, material["keyword"])
    for name, count in counts.items():
        description = description.replace(name, str(count))
    return Meta(
        title=truncate(material["title"], _TITLE_LENGTH), description=truncate(description, _DESCRIPTION_LENGTH)
    )


def _write_headings(material: dict[str, Any], texts: Texts, sheet: Sheet) -> Headings:
    by_section = {section.id: section.heading for section in sheet.sections}
    planned = [section["id"] for section in material["sections"]]
    return Headings(headings=[Heading(section=each, level=2, text=by_section[each]) for each in planned])


def _write_content(material: dict[str, Any], texts: Texts, sheet: Sheet) -> Content:
    """Use as many facts as fit the requested length, and at least one in each section."""
    facts = [fact["text"] for fact in material["facts"]]
    introductions = [_fill(text, material["keyword"]) for text in texts.introductions]
    previous = ((material.get("previous") or {}).get("introduction") or [None])[0]
    introduction = _next_variant(introductions, previous)
    room = material["word_count"] - count_words([introduction, texts.conclusion])
    chosen = _choose_facts(material["sections"], facts, room)
    sections = [_write_section(each["id"], chosen[each["id"]], facts) for each in material["sections"]]
    return Content(introduction=[introduction], sections=sections, conclusion=[texts.conclusion])


def _choose_facts(sections: Sequence[dict[str, Any]], facts: Sequence[str], room: int) -> dict[str, list[int]]:
    """Take one fact of each section in turn, until no further one fits."""
    chosen: dict[str, list[int]] = {section["id"]: [] for section in sections}
    for position in range(max((len(section["facts"]) for section in sections), default=0)):
        for section in sections:
            if position < len(section["facts"]):
                number = section["facts"][position]
                words = count_words([facts[number - 1]])
                if position == 0 or words <= room:
                    chosen[section["id"]].append(number)
                    room -= words
    return chosen


def _write_section(section: str, numbers: list[int], facts: Sequence[str]) -> SectionText:
    texts = [facts[number - 1] for number in numbers]
    starts = range(0, len(texts), FACTS_PER_PARAGRAPH)
    paragraphs = [" ".join(texts[start : start + FACTS_PER_PARAGRAPH]) for start in starts]
    return SectionText(section=section, paragraphs=paragraphs, facts=numbers)


def _write_tags(material: dict[str, Any], texts: Texts, sheet: Sheet) -> Tags:
    return Tags(tags=list(sheet.tags))


def _write_faq(material: dict[str, Any], texts: Texts, sheet: Sheet) -> Faq:
    questions = [
        Question(question=texts.question.replace("TOPIC", section.topic), answer=section.facts[0].text)
        for section in sheet.sections
    ]
    return Faq(questions=questions)


def _write_image_prompts(material: dict[str, Any], texts: Texts, sheet: Sheet) -> ImagePrompts:
    section = material["sections"][0]
    inline = texts.image.replace("TOPIC", section["topic"])
    featured = _fill(texts.featured, material["theme"])
    return ImagePrompts(
        images=[
            ImagePrompt(type=FEATURED, prompt=featured, alt=material["theme"][:200]),
            ImagePrompt(type=ImagePrompt.type_of_section(section["id"]), prompt=inline, alt=section["topic"]),
        ]
    )


def _fill(text: str, focus: str) -> str:
    filled = text.replace("FOCUS", focus)
    return filled[0].upper() + filled[1:]


def _next_variant(variants: Sequence[str], previous: str | None) -> str:
    """Return the variant after the previous one; the first if there was none."""
    return variants[(variants.index(previous) + 1) % len(variants)] if previous in variants else variants[0]


_WRITERS: dict[type[BaseModel], Callable[[dict[str, Any], Texts, Sheet], BaseModel]] = {
    BriefDraft: _write_brief,
    Outline: _write_outline,
    TitleDraft: _write_title,
    Meta: _write_meta,
    Headings: _write_headings,
    Content: _write_content,
    Tags: _write_tags,
    Faq: _write_faq,
    ImagePrompts: _write_image_prompts,
}

OFFLINE_MODEL = LanguageModel(OfflineWriter(), MODEL, follows_notes=False)
