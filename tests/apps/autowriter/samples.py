"""Requests and parts of articles for tests."""

from __future__ import annotations

from typing import Any

from retoma_apps.autowriter.models import (
    ArticleRequest,
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
from retoma_apps.autowriter.steps.quality import Article

REQUEST = {
    "blog_id": "saude",
    "theme": "Café e cafeína",
    "objective": "explicar quanto café é seguro",
    "language": "pt-BR",
    "word_count": 400,
}
HEADER = "blog_id,theme,objective,language,word_count"
LINE = "saude,Café e cafeína,explicar quanto café é seguro,pt-BR,400"
POST = "https://blog.example/sono"


def make_request(**changes: Any) -> ArticleRequest:
    return ArticleRequest.model_validate({**REQUEST, **changes})


SENTENCES = [
    "The coffee plant grows in warm countries and it is harvested by hand on most of the farms that are in the hills.",
    "Each of the cherries has two seeds, which are washed, dried and roasted before they can be sold to the customers.",
    "What people call a strong cup is often more about the roast than about the amount of caffeine that is in it.",
    "In the morning a cup of it helps many people to wake up, and in the evening it keeps some of them from sleep.",
]


FACT = Fact(
    text="A cherry of the coffee plant has two seeds, which are washed, dried and roasted.",
    source_name="A source",
    source_url="https://source.example/1",
)


def make_article(**changes: Any) -> Article:
    """Return an article without findings: 4 sentences, about 90 words."""
    parts: dict[str, Any] = {
        "language": "en",
        "word_count": 85,
        "brief": Brief(
            angle="a",
            audience="",
            facts=[FACT],
            pipeline_version="1",
        ),
        "outline": Outline(sections=[OutlineSection(id="plant", topic="the plant", facts=[1])]),
        "keywords": Keywords(focus="coffee plant", others=[], provider="offline"),
        "title_slug": TitleSlug(title="The coffee plant and its seeds", slug="the-coffee-plant-and-its-seeds"),
        "meta": Meta(
            title="The coffee plant and its seeds",
            description="Where the coffee plant grows, how its seeds are washed and roasted, and what a cup does.",
        ),
        "headings": Headings(headings=[Heading(section="plant", level=2, text="The plant")]),
        "content": Content(
            introduction=[SENTENCES[0]],
            sections=[SectionText(section="plant", paragraphs=SENTENCES[1:3], facts=[1])],
            conclusion=[SENTENCES[3]],
        ),
        "faq": Faq(questions=[Question(question="Who harvests it?", answer="Most farms harvest it by hand.")]),
        "links": Links(links=[InternalLink(section="plant", url=POST, title="Sleep")]),
        "bundled": [FACT],
        "posts": {POST},
    }
    return Article(**{**parts, **changes})
