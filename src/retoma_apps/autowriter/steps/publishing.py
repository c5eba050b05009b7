"""Publish an article as a draft: one post, however often it is sent.

The engine's errors of providers pause a pool, and all blogs share one. So an error of one site becomes one of its
article here: a blog that is down or misconfigured must not stop the others.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable
from typing import TypeVar

from retoma import Context, GiveUp, NeedsReview, RetryLater
from retoma.errors import ProviderDown, ProviderRejected, RateLimited
from retoma_apps.autowriter.models import FEATURED, Payload, Published
from retoma_apps.autowriter.services import Site
from retoma_apps.providers import wordpress
from retoma_apps.providers.wordpress import Article, PostChanged, PostLink, Publication, PublicationFailed, Seo

Answer = TypeVar("Answer")
KEPT = "kept"
_ASK = {
    "POST_EDITED": "somebody edited the post: approve to keep it as it is, or send this back to overwrite it",
    "POST_DELETED": "the post was deleted: approve to leave it so, or send this back to create a new draft",
}


async def publish_article(payload: Payload, identity: str, site: Site, ctx: Context) -> Published:
    """Publish this revision. A person who sent the work back decided that this revision overwrites the post."""
    publication = Publication(
        idempotency_key=identity,
        job_id=str(ctx.run),
        revision=ctx.revision,
        article=await asyncio.to_thread(_build_article, payload, ctx),
        blog_id=site.site_id,
        force=ctx.feedback is not None and ctx.feedback.revision == ctx.revision,
    )
    try:
        draft = await _isolate(site.wordpress.publish(publication))
    except PostChanged as error:
        kept = await _find_kept_post(identity, site, payload, ctx)
        raise NeedsReview(f"{_ASK[error.code]} ({error})", value=kept, code=error.code) from error
    return Published(
        post_id=draft.post_id,
        job_id=draft.job_id,
        status=draft.status,
        revision=draft.revision,
        edit_url=draft.edit_url,
        warnings=[warning.message for warning in draft.warnings],
        missing_images=payload.missing_images,
    )


async def mark_draft(identity: str, note: str, site: Site) -> bool:
    """Mark the draft of a rejected article. Return False if there is none, as nothing was published."""
    return await _isolate(site.wordpress.mark(identity, note)) is not None


async def list_posts(site: Site) -> list[PostLink]:
    return await _isolate(site.wordpress.list_posts(site.site_id))


async def _isolate(call: Awaitable[Answer]) -> Answer:
    """Return what the call returns, with errors that concern only this article."""
    try:
        return await call
    except RateLimited as error:
        raise RetryLater(error.delay, str(error)) from error
    except ProviderRejected as error:
        raise GiveUp(str(error), getattr(error, "code", "AUTH_FAILED")) from error
    except ProviderDown as error:
        raise PublicationFailed(str(error), "WP_PUBLISH_FAIL") from error


async def _find_kept_post(identity: str, site: Site, payload: Payload, ctx: Context) -> Published | None:
    """Return the post as it is, or None if it is gone: the result if a person keeps it."""
    known = await _isolate(site.wordpress.get_job(identity))
    if known is None or known.post_id is None:
        return None
    return Published(
        post_id=known.post_id,
        job_id=known.job_id,
        status=KEPT,
        revision=known.revision,
        edit_url=(ctx.previous_result or {}).get("edit_url", ""),
        missing_images=payload.missing_images,
    )


def _build_article(payload: Payload, ctx: Context) -> Article:
    return Article(
        title=payload.title,
        slug=payload.slug,
        content=payload.content,
        excerpt=payload.excerpt,
        language=payload.language,
        categories=tuple(payload.categories),
        tags=tuple(payload.tags),
        seo=Seo(payload.meta.title, payload.meta.description, payload.focus_keyword),
        images=tuple(
            wordpress.Image(
                key=image.key,
                kind="featured" if image.type == FEATURED else "inline",
                filename=f"{payload.slug}-{image.type}.jpg",
                mime=image.file.media_type,
                content=ctx.path(image.file).read_bytes(),
                alt=image.alt,
            )
            for image in payload.images
        ),
    )
