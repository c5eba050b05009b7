"""What WordPress reports about drafts: once each, in order, and complete, whatever got lost on the way."""

from __future__ import annotations

import asyncio
from collections.abc import Iterable, Mapping, Sequence
from contextlib import suppress
from datetime import datetime
from functools import lru_cache
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
    WordPressSettings,
    read_notification,
)


async def receive_notification(client: Client, open_blog: OpenBlog, headers: Mapping[str, str], body: bytes) -> None:
    """Record a notification of the plugin, and ask for those that are missing before it.

    Raise BadSignature unless the site of the article signed it, NotFound for an unknown article, or InvalidInput.
    """
    now = await client.now()
    sites = {blog.site for blog in (await list_blogs(client)).values()}
    # In a thread, and at most once a minute for each site: anybody can send requests that are not signed.
    accepted = await asyncio.to_thread(_list_credentials, sites, now)
    notification = read_notification(accepted, headers, body, now)
    if notification.kind == "ping":
        return
    run = await _find_run(client, notification)
    request = ArticleRequest.model_validate(run.input)
    blog, _ = await get_blog(client, request.blog_id)
    read_notification(_list_credentials([blog.site], now), headers, body, now)  # another site's secret is not enough
    await client.inbound_events.record(request.identity, _to_inbound_event(notification), tenant=request.blog_id)

    async def fetch(after: int) -> Sequence[InboundEvent]:
        return await _fetch_events(open_blog, blog, request.identity)

    with suppress(RetryLater, GiveUp):  # the site does not answer now; the next notification or refresh asks again
        await client.inbound_events.fill_gaps(request.identity, fetch, tenant=request.blog_id)


async def refresh_events(client: Client, open_blog: OpenBlog, run: Run) -> None:
    """Ask the plugin for all events of an article, in case its notifications never arrived.

    Raise what the client of WordPress raises if the site does not answer.
    """
    request = ArticleRequest.model_validate(run.input)
    blog, _ = await get_blog(client, request.blog_id)
    events = await _fetch_events(open_blog, blog, request.identity)
    await client.inbound_events.record(request.identity, *events, tenant=request.blog_id)


def _list_credentials(sites: Iterable[str], now: datetime) -> list[Credentials]:
    minute = int(now.timestamp() // 60)
    return [credentials for site in sites for credentials in _load_credentials(site, minute)]


@lru_cache(maxsize=2_000)
def _load_credentials(site: str, minute: int) -> tuple[Credentials, ...]:
    """Return the credentials of a site. A secret that replaces another is known in the next minute."""
    try:
        return tuple(WordPressSettings.for_site(site).list_credentials())
    except (ProviderRejected, GiveUp):  # a site without a secret signs nothing
        return ()


async def _find_run(client: Client, notification: Notification) -> Run:
    try:
        run = await get_article_run(client, UUID(notification.job_id or ""))
    except ValueError:
        raise NotFound("the notification names no article") from None
    if ArticleRequest.model_validate(run.input).identity != notification.idempotency_key:
        raise NotFound(f"the key of the notification is not that of article {run.id}")
    return run


async def _fetch_events(open_blog: OpenBlog, blog: Blog, identity: str) -> list[InboundEvent]:
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
