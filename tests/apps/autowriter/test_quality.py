from __future__ import annotations

import math
from typing import Any

import pytest

from retoma_apps.autowriter.models import (
    Brief,
    Content,
    Fact,
    Faq,
    Heading,
    Headings,
    InternalLink,
    Keywords,
    Links,
    Meta,
    Outline,
    OutlineSection,
    Question,
    SectionText,
    TitleSlug,
)
from retoma_apps.autowriter.steps.language import detect_language
from retoma_apps.autowriter.steps.quality import check_quality
from tests.apps.autowriter.samples import FACT, SENTENCES, make_article

PORTUGUESE = (
    "O café é uma bebida que muitas pessoas tomam pela manhã, e não são poucas as que tomam mais de uma xícara. "
    "Ainda não está claro para todos quanto é demais, mas há estudos sobre isso, e eles dizem que a dose importa."
)
FILLER = [
    "The coffee plant is one of the most popular topics of our time, and it is not easy to say why that is so.",
    "There is much to say about the coffee plant, and in this text we say as much of it as we can in a few words.",
]
OTHER_FACT = Fact(
    text="Arabica has 44 chromosomes and robusta has 22.", source_name="A source", source_url="https://source.example/2"
)
SPANISH = (
    "El café es una bebida que muchas personas toman por la mañana, y no son pocas las que toman más de una taza. "
    "Todavía no está claro para todos cuánto es demasiado, pero hay estudios según los cuales la dosis importa."
)


def content(*paragraphs: str, facts: tuple[int, ...] = (1,), section: str = "plant") -> Content:
    return Content(
        introduction=[paragraphs[0]],
        sections=[SectionText(section=section, paragraphs=list(paragraphs[1:]), facts=list(facts))],
        conclusion=[],
    )


def make_faq(answer: str) -> Faq:
    return Faq(questions=[Question(question="Who harvests it?", answer=answer)])


def test_a_good_article_has_no_findings() -> None:
    report = check_quality(make_article())
    assert (report.findings, report.language, report.blocks) == ([], "en", [])


WRONG: list[tuple[str, str, dict[str, Any]]] = [
    ("length", "warn", {"word_count": 110}),
    ("length", "block", {"word_count": 500}),
    ("language", "warn", {"language": "pt-BR"}),
    ("language", "warn", {"content": content("Coffee plant.", "Seeds."), "word_count": 3}),
    ("headings", "warn", {"headings": Headings(headings=[Heading(section="plant", level=3, text="The plant")])}),
    ("headings", "warn", {"headings": Headings(headings=[Heading(section="plant", level=2, text="A plant")] * 2)}),
    ("sections", "block", {"content": content(*SENTENCES, section="other")}),
    (
        "sections",
        "warn",
        {
            "content": Content(
                introduction=[],
                sections=[SectionText(section="plant", paragraphs=SENTENCES, facts=[1])],
                conclusion=[],
            )
        },
    ),
    (
        "sections",
        "warn",
        {
            "outline": Outline(sections=[OutlineSection(id=each, topic="t", facts=[1]) for each in ("plant", "cup")]),
            "content": Content(
                introduction=[SENTENCES[0]],
                sections=[SectionText(section=each, paragraphs=[SENTENCES[1]], facts=[1]) for each in ("plant", "cup")],
                conclusion=[SENTENCES[2]],
            ),
        },
    ),
    ("keyword", "warn", {"keywords": Keywords(focus="green tea", others=[], provider="offline")}),
    ("keyword", "warn", {"content": content(SENTENCES[1], SENTENCES[0], *SENTENCES[2:])}),
    ("keyword", "warn", {"title_slug": TitleSlug(title="Its seeds", slug="its-seeds")}),
    ("meta", "warn", {"meta": Meta(title="Coffee", description="d" * 100)}),
    ("meta", "warn", {"meta": Meta(title="The coffee plant and its seeds", description="short")}),
    ("meta", "warn", {"meta": Meta(title="The coffee plant " + "t" * 49, description="d" * 100)}),
    ("meta", "warn", {"meta": Meta(title="The coffee plant and its seeds", description="d" * 166)}),
    ("links", "warn", {"links": Links(links=[InternalLink(section="plant", url="https://gone.example", title="x")])}),
    ("repetition", "warn", {"content": content(*SENTENCES[:3], SENTENCES[2])}),
    ("facts", "block", {"content": content(*SENTENCES, facts=())}),
    ("facts", "block", {"brief": Brief(angle="a", audience="", facts=[], pipeline_version="1")}),
    (
        "facts",
        "warn",
        {
            "brief": Brief(
                angle="a",
                audience="",
                facts=[FACT.model_copy(update={"source_url": ""})],
                pipeline_version="1",
            )
        },
    ),
    ("facts", "warn", {"content": content(*SENTENCES, facts=(1, 7))}),
    ("facts", "block", {"content": content(*SENTENCES[:1], *FILLER)}),
    (
        "facts",
        "warn",
        {
            "brief": Brief(angle="a", audience="", facts=[FACT, OTHER_FACT], pipeline_version="1"),
            "content": content(*SENTENCES, facts=(1, 2)),
        },
    ),
    ("unverified", "note", {"bundled": []}),
    ("faq", "warn", {"faq": make_faq("Machines do everything nowadays, on each continent.")}),
    ("faq", "warn", {"faq": make_faq("Most farms harvest it by hand, for 70 days.")}),
    ("faq", "warn", {"faq": make_faq(PORTUGUESE)}),
]


@pytest.mark.parametrize(("check", "level", "changes"), WRONG)
def test_each_mistake_is_found(check: str, level: str, changes: dict[str, Any]) -> None:
    found = check_quality(make_article(**changes)).findings
    assert (check, level) in [(finding.check, finding.level) for finding in found], found


def test_a_length_within_fifteen_percent_is_accepted() -> None:
    words = check_quality(make_article()).words
    for wanted in (math.ceil(words / 1.15), words, math.floor(words / 0.85)):
        assert check_quality(make_article(word_count=wanted)).findings == []
    for wanted in (math.floor(words / 1.17), math.ceil(words / 0.83)):
        (finding,) = check_quality(make_article(word_count=wanted)).findings
        assert (finding.check, finding.level) == ("length", "warn")


@pytest.mark.parametrize(
    ("text", "language"),
    [(PORTUGUESE, "pt-BR"), (SPANISH, "es"), (" ".join(SENTENCES), "en"), ("café com leite", None)],
)
def test_the_language_of_running_text_is_detected(text: str, language: str | None) -> None:
    assert detect_language(text) == language


def test_text_without_common_words_has_no_language() -> None:
    assert detect_language("lorem ipsum dolor sit amet " * 10) is None


def test_a_note_does_not_hold_an_article() -> None:
    report = check_quality(make_article(bundled=[]))
    assert [finding.level for finding in report.findings] == ["note"]
    assert not report.has_warnings
    assert check_quality(make_article(word_count=110)).has_warnings


def test_a_fact_in_other_words_is_stated() -> None:
    paraphrase = (
        "Once the fruit is picked, workers take out both seeds, wash them, let them dry and send them to be roasted."
    )
    assert check_quality(make_article(content=content(SENTENCES[0], paraphrase, *SENTENCES[2:]))).findings == []
