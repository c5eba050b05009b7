"""Publish the film: once, and later only its texts, thumbnail and subtitles, unless a person wants a new video."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from retoma import Context, GiveUp
from retoma_apps.media.publishing import send_once, set_thumbnail
from retoma_apps.providers.youtube import Channel, LocalizedTexts, Published, VideoToPublish, mark_of
from retoma_apps.stories.models import Approval, Film, Metadata, Thumbnails, Track, Upload
from retoma_apps.stories.services import Services


@dataclass(frozen=True)
class _Target:
    """The video on the channel, the film that it shows with the starts of its scenes, and the videos before it."""

    published: Published
    film: str
    starts: list[float]
    earlier: list[str]


async def upload_story(
    approval: Approval,
    film: Film,
    thumbnails: Thumbnails,
    metadata: Metadata,
    *,
    language: str,
    services: Services,
    ctx: Context,
) -> Upload:
    if approval.thumbnail > len(thumbnails.variants):
        raise GiveUp(f"there is no thumbnail {approval.thumbnail}: rerun the review with another", "NO_THUMBNAIL")
    previous = Upload.model_validate(ctx.previous_result) if ctx.previous_result else None
    video = _describe_video(approval, metadata, film, language, ctx)
    if previous and (previous.film == film.video.file or not approval.new_video):
        account, channel = previous.account, services.channel(previous.account)
        await channel.update_texts(previous.video_id, video)
        target = _Target(Published(previous.video_id, previous.url), previous.film, previous.starts, previous.earlier)
    else:
        account = str((await ctx.profile() or {}).get("account", ""))  # only the server's operator can change it
        channel = services.channel(account)
        published = await send_once(account, video, ctx.path(film.video), services, ctx)
        earlier = [url for url in (*previous.earlier, previous.url) if url != published.url] if previous else []
        target = _Target(published, film.video.file, film.starts, earlier)
    picture = ctx.path(thumbnails.variants[approval.thumbnail - 1].image)
    refused = [refusal] if (refusal := await set_thumbnail(channel, target.published, picture)) else []
    # Subtitles with other times would not fit the film that the video shows.
    tracks = film.tracks if target.starts == film.starts else []
    refused += await _set_tracks(channel, target.published, tracks, ctx)
    return Upload(
        video_id=target.published.video_id,
        url=target.published.url,
        account=account,
        channel=channel.name,
        title=video.title,
        uploaded_at=await ctx.now(),
        film=target.film,
        starts=target.starts,
        is_current_film=target.film == film.video.file,
        tracks=[track.language for track in tracks],
        earlier=target.earlier,
        refused=refused,
    )


def _describe_video(approval: Approval, metadata: Metadata, film: Film, language: str, ctx: Context) -> VideoToPublish:
    return VideoToPublish(
        title=approval.title or metadata.title,
        # One film of a story is one video, however often its upload is rerun.
        mark=mark_of(f"{ctx.subject_key}:{film.video.file}"),
        description=approval.description if approval.description is not None else metadata.description,
        tags=tuple(approval.tags if approval.tags is not None else metadata.tags),
        language=language,
        localizations={
            other: LocalizedTexts(texts.title, texts.description) for other, texts in metadata.localizations.items()
        },
    )


async def _set_tracks(channel: Channel, published: Published, tracks: Sequence[Track], ctx: Context) -> list[str]:
    """Return why tracks were rejected: a retry would not help, and the video is published."""
    refused = []
    for track in tracks:
        captions: Path = ctx.path(track.vtt)
        try:
            content = await asyncio.to_thread(captions.read_bytes)
            await channel.set_captions(published.video_id, track.language, content)
        except GiveUp as refusal:
            refused.append(f"{track.language}: {refusal}")
    return refused
