"""The quality gate: pure checks of an article. Each finding warns, for a person to decide, or blocks the article."""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Iterator
from dataclasses import dataclass

from retoma_apps.autowriter.models import (
    Brief,
    Content,
    Finding,
    Headings,
    Keywords,
    Language,
    Links,
    Meta,
    Outline,
    QualityReport,
    TitleSlug,
)
from retoma_apps.autowriter.steps.language import detect_language
from retoma_apps.autowriter.steps.texts import contains_phrase, count_words, fold

LENGTH_TOLERANCE = 0.15
BLOCKING_LENGTH = 0.5  # less than half, or more than one and a half times the words, is not the requested article
META_TITLE = (20, 65)
META_DESCRIPTION = (70, 165)
MAX_REPEATED_SHARE = 0.1  # of the sentences


@dataclass(frozen=True)
class Article:
    """Everything that is checked. `posts` are the addresses of the blog's posts."""

    language: Language
    word_count: int
    brief: Brief
    outline: Outline
    keywords: Keywords
    title_slug: TitleSlug
    meta: Meta
    headings: Headings
    content: Content
    links: Links
    posts: Collection[str]


def check_quality(article: Article) -> QualityReport:
    language = detect_language(" ".join(article.content.paragraphs))
    findings = [
        *_check_length(article),
        *_check_language(article, language),
        *_check_headings(article),
        *_check_sections(article),
        *_check_keyword(article),
        *_check_meta(article),
        *_check_links(article),
        *_check_repetition(article),
        *_check_facts(article),
    ]
    return QualityReport(words=count_words(article.content.paragraphs), language=language, findings=findings)


def _warn(check: str, message: str) -> Finding:
    return Finding(check=check, level="warn", message=message)


def _block(check: str, message: str) -> Finding:
    return Finding(check=check, level="block", message=message)


def _check_length(article: Article) -> Iterator[Finding]:
    words, wanted = count_words(article.content.paragraphs), article.word_count
    deviation = abs(words - wanted) / wanted
    if deviation > LENGTH_TOLERANCE:
        finding = _block if deviation > BLOCKING_LENGTH else _warn
        yield finding("length", f"the body has {words} words, but {wanted} were requested ({deviation:.0%} off)")


def _check_language(article: Article, language: str | None) -> Iterator[Finding]:
    if language is None:
        yield _warn("language", "the language of the body could not be told")
    elif language != article.language:
        yield _warn("language", f"the body is in {language}, but {article.language} was requested")


def _check_headings(article: Article) -> Iterator[Finding]:
    previous = 1
    for heading in article.headings.headings:
        if heading.level > previous + 1:
            yield _warn("headings", f"{heading.text!r} is of level {heading.level}, below one of level {previous}")
        previous = heading.level
    texts = Counter(fold(heading.text) for heading in article.headings.headings)
    if repeated := [text for text, count in texts.items() if count > 1]:
        yield _warn("headings", f"several sections have the heading {repeated[0]!r}")


def _check_sections(article: Article) -> Iterator[Finding]:
    planned = [section.id for section in article.outline.sections]
    written = {each.section for each in article.content.sections if each.paragraphs}
    headed = {heading.section for heading in article.headings.headings}
    if missing := [section for section in planned if section not in written]:
        yield _block("sections", f"these sections of the outline have no text: {', '.join(missing)}")
    if missing := [section for section in planned if section not in headed]:
        yield _warn("sections", f"these sections of the outline have no heading: {', '.join(missing)}")
    if not article.content.introduction:
        yield _warn("sections", "there is no introduction")


def _check_keyword(article: Article) -> Iterator[Finding]:
    focus = article.keywords.focus
    if not contains_phrase(article.title_slug.title, focus):
        yield _warn("keyword", f"the title does not contain the keyword {focus!r}")
    if not contains_phrase(next(iter(article.content.paragraphs), ""), focus):
        yield _warn("keyword", f"the first paragraph does not contain the keyword {focus!r}")


def _check_meta(article: Article) -> Iterator[Finding]:
    for name, text, (least, most) in (
        ("title", article.meta.title, META_TITLE),
        ("description", article.meta.description, META_DESCRIPTION),
    ):
        if not least <= len(text) <= most:
            yield _warn("meta", f"the meta {name} has {len(text)} characters; search engines show {least} to {most}")


def _check_links(article: Article) -> Iterator[Finding]:
    for link in article.links.links:
        if link.url not in article.posts:
            yield _warn("links", f"the blog has no post at {link.url}")


def _check_repetition(article: Article) -> Iterator[Finding]:
    sentences = [fold(each) for text in article.content.paragraphs for each in text.split(". ") if len(each) > 20]
    repeated = sum(count - 1 for count in Counter(sentences).values())
    if sentences and repeated / len(sentences) > MAX_REPEATED_SHARE:
        yield _warn("repetition", f"{repeated} of {len(sentences)} sentences repeat an earlier one")


def _check_facts(article: Article) -> Iterator[Finding]:
    facts = article.brief.facts
    used = [facts[number - 1] for number in sorted(article.content.used_facts) if 1 <= number <= len(facts)]
    if not used:
        yield _block("facts", "the body uses no fact of the brief")
    if unsourced := [fact for fact in used if not fact.has_source]:
        yield _warn("facts", f"{len(unsourced)} of {len(used)} facts have no source: {unsourced[0].text[:80]!r}")
    if unknown := sorted(number for number in article.content.used_facts if not 1 <= number <= len(facts)):
        yield _warn("facts", f"the body refers to facts that the brief does not have: {unknown}")
