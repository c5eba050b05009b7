"""The quality gate: pure checks of an article. A finding is a note, warns, for a person to decide, or blocks it."""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Iterable, Iterator, Mapping
from dataclasses import dataclass

from retoma.translations import N_
from retoma_apps.autowriter.models import (
    Brief,
    Content,
    Fact,
    Faq,
    Finding,
    Headings,
    Keywords,
    Language,
    Level,
    Links,
    Meta,
    Outline,
    QualityReport,
    SectionText,
    TitleSlug,
)
from retoma_apps.autowriter.steps.language import detect_language
from retoma_apps.autowriter.steps.texts import contains_phrase, count_words, fold, list_significant_stems

LENGTH_TOLERANCE = 0.15
BLOCKING_LENGTH = 0.5  # less than half, or more than one and a half times the words, is not the requested article
META_TITLE = (20, 65)
META_DESCRIPTION = (70, 165)
MAX_REPEATED_SHARE = 0.1  # of the sentences
STATED_SHARE = 1 / 3  # of a fact's significant words, without the keyword: a text with as many of them states it
FEWEST_STEMS = 4  # of an answer: a shorter one says too little to be compared


@dataclass(frozen=True)
class Article:
    """Everything that is checked. `bundled` are the facts that come with the application, and `posts` the addresses of
    the blog's posts."""

    language: Language
    word_count: int
    brief: Brief
    outline: Outline
    keywords: Keywords
    title_slug: TitleSlug
    meta: Meta
    headings: Headings
    content: Content
    faq: Faq
    links: Links
    bundled: Collection[Fact]
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
        *_check_sources(article),
        *_check_faq(article),
    ]
    return QualityReport(words=count_words(article.content.paragraphs), language=language, findings=findings)


def _warn(check: str, template: str, **values: object) -> Finding:
    return _make_finding(check, "warn", template, values)


def _note(check: str, template: str, **values: object) -> Finding:
    return _make_finding(check, "note", template, values)


def _block(check: str, template: str, **values: object) -> Finding:
    return _make_finding(check, "block", template, values)


def _make_finding(check: str, level: Level, template: str, values: Mapping[str, object]) -> Finding:
    texts = {name: str(value) for name, value in values.items()}
    return Finding(check=check, level=level, message=template % texts, template=template, values=texts)


def _check_length(article: Article) -> Iterator[Finding]:
    words, wanted = count_words(article.content.paragraphs), article.word_count
    deviation = abs(words - wanted) / wanted
    if deviation > LENGTH_TOLERANCE:
        finding = _block if deviation > BLOCKING_LENGTH else _warn
        yield finding(
            "length",
            N_("the body has %(words)s words, but %(wanted)s were requested (%(share)s off)"),
            words=words,
            wanted=wanted,
            share=f"{deviation:.0%}",
        )


def _check_language(article: Article, language: str | None) -> Iterator[Finding]:
    if language is None:
        yield _warn("language", N_("the language of the body could not be detected"))
    elif language != article.language:
        yield _warn(
            "language",
            N_("the body is in %(language)s, but %(wanted)s was requested"),
            language=language,
            wanted=article.language,
        )


def _check_headings(article: Article) -> Iterator[Finding]:
    previous = 1
    for heading in article.headings.headings:
        if heading.level > previous + 1:
            yield _warn(
                "headings",
                N_("“%(heading)s” is of level %(level)s, below one of level %(previous)s"),
                heading=heading.text,
                level=heading.level,
                previous=previous,
            )
        previous = heading.level
    texts = Counter(fold(heading.text) for heading in article.headings.headings)
    if repeated := [text for text, count in texts.items() if count > 1]:
        yield _warn("headings", N_("several sections have the heading “%(heading)s”"), heading=repeated[0])


def _check_sections(article: Article) -> Iterator[Finding]:
    planned = [section.id for section in article.outline.sections]
    written = {each.section for each in article.content.sections if each.paragraphs}
    headed = {heading.section for heading in article.headings.headings}
    if missing := [section for section in planned if section not in written]:
        yield _block(
            "sections", N_("these sections of the outline have no text: %(sections)s"), sections=", ".join(missing)
        )
    if missing := [section for section in planned if section not in headed]:
        yield _warn(
            "sections", N_("these sections of the outline have no heading: %(sections)s"), sections=", ".join(missing)
        )
    if not article.content.introduction:
        yield _warn("sections", N_("there is no introduction"))


def _check_keyword(article: Article) -> Iterator[Finding]:
    focus = article.keywords.focus
    if not contains_phrase(article.title_slug.title, focus):
        yield _warn("keyword", N_("the title does not contain the keyword “%(keyword)s”"), keyword=focus)
    if not contains_phrase(next(iter(article.content.paragraphs), ""), focus):
        yield _warn("keyword", N_("the first paragraph does not contain the keyword “%(keyword)s”"), keyword=focus)


def _check_meta(article: Article) -> Iterator[Finding]:
    for template, text, (least, most) in (
        (
            N_("the meta title has %(length)s characters; search engines show %(least)s to %(most)s"),
            article.meta.title,
            META_TITLE,
        ),
        (
            N_("the meta description has %(length)s characters; search engines show %(least)s to %(most)s"),
            article.meta.description,
            META_DESCRIPTION,
        ),
    ):
        if not least <= len(text) <= most:
            yield _warn("meta", template, length=len(text), least=least, most=most)


def _check_links(article: Article) -> Iterator[Finding]:
    for link in article.links.links:
        if link.url not in article.posts:
            yield _warn("links", N_("the blog has no post at %(url)s"), url=link.url)


def _check_repetition(article: Article) -> Iterator[Finding]:
    sentences = [fold(each) for text in article.content.paragraphs for each in text.split(". ") if len(each) > 20]
    repeated = sum(count - 1 for count in Counter(sentences).values())
    if sentences and repeated / len(sentences) > MAX_REPEATED_SHARE:
        yield _warn(
            "repetition",
            N_("%(repeated)s of %(sentences)s sentences repeat an earlier one"),
            repeated=repeated,
            sentences=len(sentences),
        )


def _check_facts(article: Article) -> Iterator[Finding]:
    declared, known = _list_declared(article), range(1, len(article.brief.facts) + 1)
    unstated = [(section, fact) for section, fact in declared if not _states(article, section.paragraphs, fact)]
    if len(unstated) == len(declared):
        yield _block("facts", N_("the body uses no fact of the brief"))
    elif unstated:
        section, fact = unstated[0]
        yield _warn(
            "facts",
            N_("%(unstated)s of %(declared)s facts are not in the section that names them: “%(fact)s” in %(section)s"),
            unstated=len(unstated),
            declared=len(declared),
            fact=fact.text[:80],
            section=section.section,
        )
    if unknown := sorted(article.content.used_facts.difference(known)):
        yield _warn(
            "facts",
            N_("the body refers to facts that the brief does not have: %(facts)s"),
            facts=", ".join(map(str, unknown)),
        )


def _check_sources(article: Article) -> Iterator[Finding]:
    used = list({fact.text: fact for _, fact in _list_declared(article)}.values())
    if unsourced := [fact for fact in used if not fact.has_source]:
        yield _warn(
            "facts",
            N_("%(unsourced)s of %(used)s facts have no source: “%(fact)s”"),
            unsourced=len(unsourced),
            used=len(used),
            fact=unsourced[0].text[:80],
        )
    if unverified := [fact for fact in used if fact.has_source and fact not in article.bundled]:
        yield _note(
            "unverified",
            N_(
                "%(unverified)s of %(used)s facts name a source from the model's memory, which nobody has read: "
                "“%(fact)s” (%(source)s)"
            ),
            unverified=len(unverified),
            used=len(used),
            fact=unverified[0].text[:80],
            source=unverified[0].source_name,
        )


def _check_faq(article: Article) -> Iterator[Finding]:
    answers = [each.answer for each in article.faq.questions]
    language = detect_language(" ".join(answers))
    if language not in (None, article.language):
        yield _warn(
            "faq",
            N_("the questions and answers are in %(language)s, but %(wanted)s was requested"),
            language=language,
            wanted=article.language,
        )
    known = _list_stems(article, [*article.content.paragraphs, *(fact.text for fact in article.brief.facts)])
    for each in article.faq.questions:
        stems = _list_stems(article, [each.answer])
        if len(stems) >= FEWEST_STEMS and len(stems & known) < STATED_SHARE * len(stems):
            yield _warn(
                "faq", N_("neither the body nor the facts support the answer to “%(question)s”"), question=each.question
            )
        elif numbers := sorted(stem for stem in stems - known if stem.isdigit()):
            yield _warn(
                "faq",
                N_("the answer to “%(question)s” has numbers that neither the body nor the facts have: %(numbers)s"),
                question=each.question,
                numbers=", ".join(numbers),
            )


def _list_declared(article: Article) -> list[tuple[SectionText, Fact]]:
    """Return the facts that the sections say they use, as far as the brief has them."""
    facts = dict(enumerate(article.brief.facts, 1))
    return [(each, facts[number]) for each in article.content.sections for number in each.facts if number in facts]


def _states(article: Article, texts: Iterable[str], fact: Fact) -> bool:
    """Return whether these texts have enough of a fact's words: not all, as they tell it in their own."""
    stems = _list_stems(article, [fact.text])
    return bool(stems) and len(stems & _list_stems(article, texts)) >= STATED_SHARE * len(stems)


def _list_stems(article: Article, texts: Iterable[str]) -> set[str]:
    """Return the stems that carry meaning, without those of the focus keyword, which every text about it has."""
    stems = {stem for text in texts for stem in list_significant_stems(text)}
    return stems.difference(list_significant_stems(article.keywords.focus))
