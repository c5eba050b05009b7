"""Turn the parts of an article into the post: escaped HTML, so no text can become markup."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from html import escape

from retoma_apps.autowriter.models import (
    FEATURED,
    Brief,
    Content,
    Faq,
    Headings,
    Image,
    ImagePrompt,
    Language,
    Links,
    Outline,
)

_LABELS: dict[Language, tuple[str, str, str]] = {
    "pt-BR": ("Veja também", "Perguntas frequentes", "Fontes"),
    "en": ("See also", "Frequently asked questions", "Sources"),
    "es": ("Ver también", "Preguntas frecuentes", "Fuentes"),
}


@dataclass(frozen=True)
class Parts:
    language: Language
    brief: Brief
    outline: Outline
    headings: Headings
    content: Content
    faq: Faq
    links: Links
    images: tuple[Image, ...]


def build_html(parts: Parts) -> str:
    """Return the body of the post. The plugin replaces the comment of each inline image by its figure."""
    _, faq, sources = _LABELS[parts.language]
    lines = [*_paragraphs(parts.content.introduction)]
    for section in parts.outline.sections:
        lines += _build_section(section.id, parts)
    lines += _paragraphs(parts.content.conclusion)
    if parts.faq.questions:
        lines.append(f"<h2>{faq}</h2>")
        for each in parts.faq.questions:
            lines += [f"<h3>{escape(each.question)}</h3>", f"<p>{escape(each.answer)}</p>"]
    if listed := list(_list_sources(parts)):
        lines += [f"<h2>{sources}</h2>", "<ul>", *listed, "</ul>"]
    return "\n".join(lines)


def find_placeholder(image: Image) -> str:
    return f"<!-- autowriter:image {image.key} -->"


def _build_section(section: str, parts: Parts) -> Iterator[str]:
    for heading in parts.headings.headings:
        if heading.section == section:
            yield f"<h{heading.level}>{escape(heading.text)}</h{heading.level}>"
    for text in parts.content.sections:
        if text.section == section:
            yield from _paragraphs(text.paragraphs)
    for image in parts.images:
        if image.type != FEATURED and image.type == ImagePrompt.type_of_section(section):
            yield find_placeholder(image)
    for link in parts.links.links:
        if link.section == section:
            yield f'<p>{_LABELS[parts.language][0]}: <a href="{escape(link.url)}">{escape(link.title)}</a></p>'


def _paragraphs(texts: Iterable[str]) -> Iterator[str]:
    return (f"<p>{escape(text)}</p>" for text in texts)


def _list_sources(parts: Parts) -> Iterator[str]:
    """Yield each source of a used fact once."""
    facts = parts.brief.facts
    used = [facts[number - 1] for number in sorted(parts.content.used_facts) if 1 <= number <= len(facts)]
    for name, url in dict.fromkeys((fact.source_name, fact.source_url) for fact in used if fact.has_source):
        yield f'<li><a href="{escape(url)}">{escape(name)}</a></li>'
