"""The parts of an article at one of its revisions, for a comparison."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Literal, get_args

from retoma import Client
from retoma.records import Run
from retoma_apps.autowriter.models import Content, Faq, Headings, Image

Part = Literal["title", "meta", "headings", "body", "faq"]
PARTS: tuple[Part, ...] = get_args(Part)


@dataclass(frozen=True)
class ArticleRevision:
    """`texts` are the texts of each part, as lines; a part that was not written has none. `images` are by type."""

    number: int
    texts: dict[Part, str]
    images: dict[str, Image]


async def get_revision(client: Client, run: Run, number: int) -> ArticleRevision:
    results = await client.runs.get_results(run.id, revision=number)
    images = {item: Image.model_validate(each) for item, each in (results.get("images_resolved") or {}).items()}
    return ArticleRevision(number, {part: "\n".join(_list_lines(part, results)) for part in PARTS}, images)


def _list_lines(part: Part, results: Mapping[str, Any]) -> list[str]:
    match part:
        case "title":
            found = results.get("title_slug_created") or {}
            return [found[name] for name in ("title", "slug") if name in found]
        case "meta":
            found = results.get("meta_created") or {}
            return [found[name] for name in ("title", "description") if name in found]
        case "headings":
            found = results.get("headings_created")
            headings = Headings.model_validate(found).headings if found else []
            return [f"{'#' * each.level} {each.text}" for each in headings]
        case "body":
            found = results.get("content_created")
            return Content.model_validate(found).paragraphs if found else []
        case "faq":
            found = results.get("faq_created")
            questions = Faq.model_validate(found).questions if found else []
            return [text for each in questions for text in (each.question, each.answer)]
