"""What an article looks like so far: its texts and images, also before it is complete."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from retoma_apps.autowriter.models import (
    FEATURED,
    Brief,
    Content,
    Faq,
    Headings,
    Image,
    Language,
    Links,
    Meta,
    Outline,
    Payload,
)
from retoma_apps.autowriter.steps.payload import Parts, build_html


@dataclass(frozen=True)
class ArticlePreview:
    """`html` is the body as WordPress gets it, empty before there is one. Its texts are of a language model: untrusted.

    `is_complete` once the payload for WordPress is ready. `topics` are those of the outline.
    """

    title: str
    slug: str
    meta: Meta | None
    focus_keyword: str
    html: str
    topics: list[str]
    images: list[Image]
    missing_images: list[str]
    tags: list[str]
    is_complete: bool

    @property
    def featured(self) -> Image | None:
        return next((image for image in self.images if image.type == FEATURED), None)


def build_preview(results: Mapping[str, Any], language: Language) -> ArticlePreview:
    """Return the article of these results: the payload, or what there is of it."""
    found = results.get("payload_ready")
    payload = None if found is None else Payload.model_validate(found)
    title_slug, meta = results.get("title_slug_created") or {}, results.get("meta_created")
    images = [Image.model_validate(each) for each in (results.get("images_resolved") or {}).values()]
    return ArticlePreview(
        title=payload.title if payload else title_slug.get("title", ""),
        slug=payload.slug if payload else title_slug.get("slug", ""),
        meta=payload.meta if payload else Meta.model_validate(meta) if meta else None,
        focus_keyword=(results.get("keywords_resolved") or {}).get("focus", ""),
        html=payload.content if payload else _build_unfinished_html(results, language, images),
        topics=[section["topic"] for section in (results.get("outline_created") or {}).get("sections", [])],
        images=payload.images if payload else images,
        missing_images=payload.missing_images if payload else [],
        tags=payload.tags if payload else (results.get("tags_created") or {}).get("tags", []),
        is_complete=payload is not None,
    )


def _build_unfinished_html(results: Mapping[str, Any], language: Language, images: list[Image]) -> str:
    if any(results.get(step) is None for step in ("brief_created", "outline_created", "content_created")):
        return ""
    headings = results.get("headings_created")
    parts = Parts(
        language=language,
        brief=Brief.model_validate(results["brief_created"]),
        outline=Outline.model_validate(results["outline_created"]),
        headings=Headings.model_validate(headings) if headings else Headings.model_construct(headings=[]),
        content=Content.model_validate(results["content_created"]),
        faq=Faq.model_validate(results.get("faq_created") or {"questions": []}),
        links=Links.model_validate(results.get("internal_links_created") or {"links": []}),
        images=tuple(images),
    )
    return build_html(parts)
