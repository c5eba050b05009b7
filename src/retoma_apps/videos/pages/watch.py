"""The local channel: a page that plays a published video."""

from __future__ import annotations

from starlette.responses import FileResponse, Response

from retoma.errors import NotFound
from retoma.server import Page, PageContext
from retoma_apps.providers.youtube import LocalChannel, LocalVideo, is_mark
from retoma_apps.videos.pages.common import VideoPages

ROUTE = "/videos/channel/{id}"
MAX_OTHERS = 12
HEADERS = {"Content-Security-Policy": "default-src 'none'; sandbox", "X-Content-Type-Options": "nosniff"}
_PICTURES = {".png": "image/png", ".jpg": "image/jpeg"}


class WatchPages(VideoPages):
    @property
    def pages(self) -> tuple[Page, ...]:
        return (Page(ROUTE, self.show), Page(f"{ROUTE}/video", self.play), Page(f"{ROUTE}/thumbnail", self.picture))

    async def show(self, context: PageContext) -> Response:
        channel, video = await self._find_video(context)
        others = [each for each in await channel.videos() if each.video_id != video.video_id]
        return context.render(
            "videos_watch.html",
            video=video,
            tags=[tag for tag in video.tags if not is_mark(tag)],
            others=others[:MAX_OTHERS],
            **await self.get_values(context),
        )

    async def play(self, context: PageContext) -> Response:
        """Send the whole file, or the range that a player asks for."""
        _, video = await self._find_video(context)
        return FileResponse(video.video, headers=HEADERS, media_type="video/mp4")

    async def picture(self, context: PageContext) -> Response:
        _, video = await self._find_video(context)
        if video.thumbnail is None:
            raise NotFound(context.gettext("This video does not exist here."))
        return FileResponse(video.thumbnail, headers=HEADERS, media_type=_PICTURES[video.thumbnail.suffix])

    async def _find_video(self, context: PageContext) -> tuple[LocalChannel, LocalVideo]:
        """Look up the video by its id, which the channel validates."""
        channel = self.services.channel("")
        if isinstance(channel, LocalChannel) and (video := await channel.video(context.request.path_params["id"])):
            return channel, video
        raise NotFound(context.gettext("This video does not exist here."))
