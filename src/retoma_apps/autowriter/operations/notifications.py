"""What WordPress reports about drafts: once each, in order, and complete, whatever got lost on the way."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping, Sequence
from contextlib import suppress
from datetime import datetime
from uuid import UUID

from retoma import Client, GiveUp, RetryLater
from retoma.errors import NotFound, ProviderRejected
from retoma.records import InboundEvent, Run
from retoma_apps.autowriter.models import ArticleRequest, Blog
from retoma_apps.autowriter.operations.articles import get_article_run
from retoma_apps.autowriter.operations.blogs import get_blog, list_blogs
from retoma_apps.providers.wordpress import (
    Credentials,
    Event,
    Notification,
    OpenBlog,
    WordPress,
    WordPressSettings,
    read_notification,
)

_MAX_KEPT = 2_000
_KEPT: dict[tuple[str, str, int], list[Credentials]] = {}  # by blog, site and minute


async def receive_notification(client: Client, headers: Mapping[str, str], body: bytes) -> None:
    """Record a notification of the plugin, and ask for those that are missing before it.

    Raise BadSignature unless the site of the article signed it, NotFound for an unknown article, or InvalidInput.
    """
    now = await client.now()
    # At most once a minute for each blog: anybody can send requests that are not signed.
    accepted = await _list_credentials(client, await list_blogs(client), now)
    notification = read_notification(accepted, headers, body, now)
    if notification.kind == "ping":
        return
    run = await _find_run(client, notification)
    request = ArticleRequest.model_validate(run.input)
    blog, _ = await get_blog(client, request.blog_id)
    own = await _list_credentials(client, {request.blog_id: blog}, now)
    read_notification(own, headers, body, now)  # another site's secret is not enough
    await client.inbound_events.record(request.identity, _to_inbound_event(notification), tenant=request.blog_id)

    async def fetch(after: int) -> Sequence[InboundEvent]:
        return await _fetch_events(client, request.blog_id, blog, request.identity)

    with suppress(RetryLater, GiveUp):  # the site does not answer now; the next notification or refresh asks again
        await client.inbound_events.fill_gaps(request.identity, fetch, tenant=request.blog_id)


async def refresh_events(client: Client, run: Run) -> None:
    """Ask the plugin for all events of an article, in case its notifications never arrived.

    Raise what the client of WordPress raises if the site does not answer.
    """
    request = ArticleRequest.model_validate(run.input)
    blog, _ = await get_blog(client, request.blog_id)
    events = await _fetch_events(client, request.blog_id, blog, request.identity)
    await client.inbound_events.record(request.identity, *events, tenant=request.blog_id)


async def _list_credentials(client: Client, blogs: Mapping[str, Blog], now: datetime) -> list[Credentials]:
    """Return the credentials of these blogs. A secret that replaces another is known in the next minute."""
    minute, found = int(now.timestamp() // 60), []
    for blog_id, blog in blogs.items():
        key = (blog_id, blog.site, minute)
        if key not in _KEPT:
            if len(_KEPT) >= _MAX_KEPT:
                _KEPT.clear()
            _KEPT[key] = await _load_credentials(client, blog_id, blog.site)
        found += _KEPT[key]
    return found


async def _load_credentials(client: Client, blog_id: str, site: str) -> list[Credentials]:
    """Load them in a thread: those of the environment are read from files."""
    try:
        opened = (await client.get_resource("open_blog", tenant=blog_id))(site)
        settings = opened.settings if isinstance(opened, WordPress) else WordPressSettings.for_site(site)
        return await asyncio.to_thread(settings.list_credentials)
    except (ProviderRejected, GiveUp):  # a site without a secret signs nothing
        return []


async def _find_run(client: Client, notification: Notification) -> Run:
    try:
        run = await get_article_run(client, UUID(notification.job_id or ""))
    except ValueError:
        raise NotFound("the notification names no article") from None
    if ArticleRequest.model_validate(run.input).identity != notification.idempotency_key:
        raise NotFound(f"the key of the notification is not that of article {run.id}")
    return run


async def _fetch_events(client: Client, blog_id: str, blog: Blog, identity: str) -> list[InboundEvent]:
    open_blog: OpenBlog = await client.get_resource("open_blog", tenant=blog_id)
    job = await open_blog(blog.site).get_job(identity)
    return [] if job is None else [_to_inbound_event(event) for event in job.events]


def _to_inbound_event(event: Event | Notification) -> InboundEvent:
    body = {
        "kind": event.kind,
        "revision": event.revision,
        "at": event.at.isoformat(),
        "detail": dict(event.detail),
    }
    return InboundEvent(event.id if isinstance(event, Event) else event.event_id, event.sequence, body)
