"""Send a film to its channel exactly once."""

from __future__ import annotations

from pathlib import Path

from retoma import Context, GiveUp, RetryLater
from retoma.errors import SubmissionUnknown
from retoma_apps.media.services import FilmServices, SentVideo
from retoma_apps.providers.youtube import Channel, Published, SessionGone, VideoToPublish

MOST_SESSIONS = 3


async def set_thumbnail(channel: Channel, published: Published, thumbnail: Path) -> str | None:
    """Return why the thumbnail was rejected, or None: a retry would not help, and the video is published."""
    try:
        await channel.set_thumbnail(published.video_id, thumbnail)
    except GiveUp as refusal:
        return str(refusal)
    return None


async def send_once(account: str, video: VideoToPublish, path: Path, services: FilmServices, ctx: Context) -> Published:
    """Send the video, or return the one that an earlier revision has sent and that is still on the channel.

    If the job ends without a result, a worker looks for the video and deletes it. The upload of the next revision
    waits for that.
    """
    channel = services.channel(account)

    async def send() -> SentVideo:
        if ctx.revision > 1 and (found := await channel.find(video.mark)):
            return SentVideo(account, found.video_id, found.url, is_earlier=True)
        published = await _send_video(channel, video, path, services, ctx)
        return SentVideo(account, published.video_id, published.url)

    sent = await ctx.once(
        "upload", send, find=services.find_upload, cancel=services.delete_upload, key=f"{video.mark} {account}"
    )
    return Published(sent["video_id"], sent["url"])


async def _send_video(
    channel: Channel, video: VideoToPublish, path: Path, services: FilmServices, ctx: Context
) -> Published:
    """Send the video. The session is recorded before the first byte, so a retry continues the upload."""
    for number in range(1, MOST_SESSIONS + 1):
        session = await ctx.once(
            f"session {number}",
            lambda: channel.begin(video, path.stat().st_size),
            find=services.find_session,
            key=video.mark,
        )
        try:
            return await channel.send(session, path)
        except SessionGone:
            if found := await channel.find(video.mark):
                return found
        except RetryLater as error:  # the last byte may have arrived, and then there is a video
            raise SubmissionUnknown(str(error), error.delay) from error
    raise GiveUp(f"the channel lost {MOST_SESSIONS} upload sessions in a row", "UPLOAD_SESSIONS_LOST")
