"""Publish the film on its channel exactly once."""

from __future__ import annotations

from datetime import datetime, timedelta

from retoma import Context, GiveUp, NeedsReview, RetryLater
from retoma_apps.media.models import Language
from retoma_apps.media.publishing import send_once, set_thumbnail
from retoma_apps.providers.youtube import VideoToPublish, mark_of
from retoma_apps.videos.models import Assembly, Broll, FinalChoice, Publication, Script, Thumbnail, Thumbnails, Upload
from retoma_apps.videos.services import Services

EARLY_PERIOD = timedelta(minutes=10)
EARLY_POLL_INTERVAL, POLL_INTERVAL = timedelta(minutes=1), timedelta(minutes=15)
"""The intervals before and after EARLY_PERIOD."""
MAX_WAIT = timedelta(days=1)
_NOT_PUBLIC = (
    "the video should have been public for a day, but the channel reports {state}: make it public at {url} and send "
    "this back to check again, or approve to count it as published"
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
    publish_at = choice.scheduled_for or scheduled_for
    account = str((await ctx.profile() or {}).get("account", ""))  # only the server's operator can change it
    channel = services.channel(account)
    video = VideoToPublish(
        title=choice.title or script.title,
        # One film of a run is one video, however often its upload is rerun.
        mark=mark_of(f"{ctx.subject_key}:{film.video.file}"),
        description=choice.description if choice.description is not None else script.description,
        credits=tuple(broll.credits),
        tags=tuple(choice.tags if choice.tags is not None else script.tags),
        language=language,
        publish_at=publish_at if publish_at and publish_at > await ctx.now() else None,
    )
    published = await send_once(account, video, ctx.path(film.video), services, ctx)
    refused = await set_thumbnail(channel, published, ctx.path(thumbnail.image))
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
            f"there is no thumbnail {number}, only {len(thumbnails.variants)}: repeat the final review",
            "NO_THUMBNAIL",
        )
    return thumbnails.variants[number - 1]


async def check_published(upload: Upload, services: Services, ctx: Context) -> Publication:
    """Retry until the channel shows the video to everyone, or until a person must check."""
    now = await ctx.now()
    if upload.publish_at and (ahead := upload.publish_at - now) > timedelta(0):
        raise RetryLater(ahead, "the time of its publication is still ahead")
    status = await services.channel(upload.account).status(upload.video_id)
    if status.state == "published":
        return Publication(url=upload.url, published_at=now)
    if status.state in ("failed", "rejected", "deleted"):
        raise GiveUp(f"the channel did not accept the video: {status.state} {status.reason}".strip(), "NOT_PUBLISHED")
    waited = now - (upload.publish_at or upload.uploaded_at)
    if waited > MAX_WAIT:
        reason = _NOT_PUBLIC.format(state=status.state, url=upload.url)
        raise NeedsReview(reason, value=Publication(url=upload.url, published_at=now), code="NOT_PUBLIC")
    raise RetryLater(
        EARLY_POLL_INTERVAL if waited < EARLY_PERIOD else POLL_INTERVAL, f"the channel reports {status.state}"
    )
