"""The film on its channel: sent once, whatever happens on the way."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from pathlib import Path

from retoma import Context, GiveUp, RetryLater
from retoma_apps.providers.youtube import Channel, Published, SessionGone, VideoToPublish, mark_of
from retoma_apps.videos.models import Assembly, Broll, FinalChoice, Language, Publication, Script, Thumbnails, Upload
from retoma_apps.videos.studio import Studio

MOST_SESSIONS = 3
LOOK_AGAIN = timedelta(minutes=1)


async def uploaded(
    choice: FinalChoice,
    script: Script,
    film: Assembly,
    thumbnails: Thumbnails,
    broll: Broll,
    *,
    language: Language,
    scheduled_for: datetime | None,
    account: str,
    studio: Studio,
    ctx: Context,
) -> Upload:
    channel = studio.channel(account)
    video = VideoToPublish(
        title=choice.title or script.title,
        mark=mark_of(ctx.effect_key),
        description=described(choice.description if choice.description is not None else script.description, broll),
        tags=tuple(choice.tags if choice.tags is not None else script.tags),
        language=language,
        publish_at=scheduled_for if scheduled_for and scheduled_for > datetime.now(UTC) else None,
    )
    published = await _sent(channel, video, ctx.path(film.video), ctx)
    await channel.set_thumbnail(published.video_id, ctx.path(thumbnails.variants[choice.thumbnail - 1].image))
    return Upload(video_id=published.video_id, url=published.url, channel=channel.name, publish_at=video.publish_at)


async def _sent(channel: Channel, video: VideoToPublish, path: Path, ctx: Context) -> Published:
    """A session is written down before the first byte is sent, and asked how far it is by whoever goes on."""
    for number in range(1, MOST_SESSIONS + 1):
        session = await ctx.once(f"session {number}", lambda: channel.begin(video, path.stat().st_size))
        try:
            return await channel.send(session, path)
        except SessionGone:
            if found := await channel.find(video.mark):
                return found
    raise GiveUp(f"the channel forgot {MOST_SESSIONS} uploads one after the other", "UPLOAD_FORGOTTEN")


def described(text: str, broll: Broll) -> str:
    """With the authors of the footage, as its licence asks."""
    authors = dict.fromkeys(f"{clip.author} ({clip.source}): {clip.url}" for clip in broll.clips if clip.url)
    return "\n".join([text, "", *authors]).strip() if authors else text


async def seen_published(upload: Upload, account: str, studio: Studio) -> Publication:
    """Asked again until the channel shows it to all."""
    if upload.publish_at and (ahead := upload.publish_at - datetime.now(UTC)) > timedelta(0):
        raise RetryLater(ahead, f"it is to be published at {upload.publish_at:%Y-%m-%d %H:%M} UTC")
    status = await studio.channel(account).status(upload.video_id)
    if status.state in ("failed", "rejected", "deleted"):
        raise GiveUp(f"the channel has not taken the video: {status.state} {status.reason}".strip(), "NOT_PUBLISHED")
    if status.state != "published":
        raise RetryLater(LOOK_AGAIN, f"the channel says that it is {status.state}")
    return Publication(url=upload.url, published_at=datetime.now(UTC))
