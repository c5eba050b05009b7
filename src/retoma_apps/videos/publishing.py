"""The film on its channel: sent once, whatever happens on the way."""

from __future__ import annotations

from datetime import datetime, timedelta
from pathlib import Path

from retoma import Context, GiveUp, NeedsReview, RetryLater
from retoma_apps.providers.youtube import Channel, Published, SessionGone, VideoToPublish, mark_of
from retoma_apps.videos.models import (
    Assembly,
    Broll,
    FinalChoice,
    Language,
    Publication,
    Script,
    Thumbnail,
    Thumbnails,
    Upload,
)
from retoma_apps.videos.services import Services

MOST_SESSIONS = 3
EARLY_PERIOD = timedelta(minutes=10)
EARLY_POLL_INTERVAL, POLL_INTERVAL = timedelta(minutes=1), timedelta(minutes=15)
"""How far apart they are before it has waited until SOON, and after."""
MAX_WAIT = timedelta(days=1)
_NOT_PUBLIC = (
    "the video should have been public for a day, and the channel says that it is {state}: make it public at {url} and "
    "send this back to have it looked at again, or approve to count it as published"
)


async def upload_video(
    choice: FinalChoice,
    script: Script,
    film: Assembly,
    thumbnails: Thumbnails,
    broll: Broll,
    *,
    language: Language,
    scheduled_for: datetime | None,
    services: Services,
    ctx: Context,
) -> Upload:
    thumbnail = _choose_thumbnail(thumbnails, choice.thumbnail)
    account = await _get_account(ctx)
    channel = services.channel(account)
    video = VideoToPublish(
        title=choice.title or script.title,
        # One film of a run is one video, however often its upload is made anew.
        mark=mark_of(f"{ctx.subject_key}:{film.video.file}"),
        description=choice.description if choice.description is not None else script.description,
        credits=tuple(broll.credits),
        tags=tuple(choice.tags if choice.tags is not None else script.tags),
        language=language,
        publish_at=scheduled_for if scheduled_for and scheduled_for > await ctx.now() else None,
    )
    published = await _find_published(channel, video, ctx) or await _send_video(
        channel, video, ctx.path(film.video), ctx
    )
    refused = await _set_thumbnail(channel, published, ctx.path(thumbnail.image))
    return Upload(
        video_id=published.video_id,
        url=published.url,
        account=account,
        channel=channel.name,
        title=video.title,
        uploaded_at=await ctx.now(),
        publish_at=video.publish_at,
        thumbnail_refused=refused,
    )


def _choose_thumbnail(thumbnails: Thumbnails, number: int) -> Thumbnail:
    if number > len(thumbnails.variants):
        raise GiveUp(
            f"there is no thumbnail {number}, only {len(thumbnails.variants)}: decide the final review again",
            "NO_THUMBNAIL",
        )
    return thumbnails.variants[number - 1]


async def _get_account(ctx: Context) -> str:
    """Whoever runs the server decides it, on the channel."""
    return str((await ctx.profile() or {}).get("account", ""))


async def _find_published(channel: Channel, video: VideoToPublish, ctx: Context) -> Published | None:
    """What an upload at an earlier revision has published. The first need not ask."""
    return await channel.find(video.mark) if ctx.revision > 1 else None


async def _set_thumbnail(channel: Channel, published: Published, thumbnail: Path) -> str | None:
    """Why the thumbnail was not taken, if it was not: no other try would help, and the video is out."""
    try:
        await channel.set_thumbnail(published.video_id, thumbnail)
    except GiveUp as refusal:
        return str(refusal)
    return None


async def _send_video(channel: Channel, video: VideoToPublish, path: Path, ctx: Context) -> Published:
    """A session is written down before the first byte is sent, and asked how far it is by whoever goes on."""
    for number in range(1, MOST_SESSIONS + 1):
        session = await ctx.once(f"session {number}", lambda: channel.begin(video, path.stat().st_size))
        try:
            return await channel.send(session, path)
        except SessionGone:
            if found := await channel.find(video.mark):
                return found
    raise GiveUp(f"the channel forgot {MOST_SESSIONS} uploads one after the other", "UPLOAD_FORGOTTEN")


async def check_published(upload: Upload, services: Services, ctx: Context) -> Publication:
    """Asked again until the channel shows it to all, or has not for so long that a person must look."""
    now = await ctx.now()
    if upload.publish_at and (ahead := upload.publish_at - now) > timedelta(0):
        raise RetryLater(ahead, f"it is to be published at {upload.publish_at:%Y-%m-%d %H:%M} UTC")
    status = await services.channel(upload.account).status(upload.video_id)
    if status.state == "published":
        return Publication(url=upload.url, published_at=now)
    if status.state in ("failed", "rejected", "deleted"):
        raise GiveUp(f"the channel has not taken the video: {status.state} {status.reason}".strip(), "NOT_PUBLISHED")
    waited = now - (upload.publish_at or upload.uploaded_at)
    if waited > MAX_WAIT:
        said = _NOT_PUBLIC.format(state=status.state, url=upload.url)
        raise NeedsReview(said, value=Publication(url=upload.url, published_at=now), code="NOT_PUBLIC")
    raise RetryLater(
        EARLY_POLL_INTERVAL if waited < EARLY_PERIOD else POLL_INTERVAL, f"the channel says that it is {status.state}"
    )
