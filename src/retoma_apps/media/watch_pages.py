"""The local channel: pages that play a published film."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from starlette.responses import FileResponse, Response

from retoma.errors import NotFound
from retoma.server import Page, PageContext
from retoma_apps.providers.youtube import LocalChannel, LocalVideo, OpenChannel, is_mark

MAX_OTHERS = 12
HEADERS = {"Content-Security-Policy": "default-src 'none'; sandbox", "X-Content-Type-Options": "nosniff"}
_PICTURES = {".png": "image/png", ".jpg": "image/jpeg"}


@dataclass(frozen=True)
class WatchPages:
    """`route` has `{id}` for the id of a video. `missing` is the message for one that does not exist, to translate."""

    channel: OpenChannel
    route: str
    template: str
    missing: str
    get_values: Callable[[PageContext], Awaitable[dict[str, Any]]]

    @property
    def pages(self) -> tuple[Page, ...]:
        return (
            Page(self.route, self.show),
            Page(f"{self.route}/video", self.play),
            Page(f"{self.route}/thumbnail", self.show_thumbnail),
            Page(f"{self.route}/captions/{{language}}", self.show_captions),
        )

    async def show(self, context: PageContext) -> Response:
        channel, video = await self._find_video(context)
        others = [each for each in await channel.videos() if each.video_id != video.video_id]
        return context.render(
            self.template,
            video=video,
            tags=[tag for tag in video.tags if not is_mark(tag)],
            others=others[:MAX_OTHERS],
            **await self.get_values(context),
        )

    async def play(self, context: PageContext) -> Response:
        """Send the whole file, or the range that a player asks for."""
        _, video = await self._find_video(context)
        return _send(video.video, "video/mp4")

    async def show_thumbnail(self, context: PageContext) -> Response:
        _, video = await self._find_video(context)
        if video.thumbnail is None:
            raise self._build_error(context)
        return _send(video.thumbnail, _PICTURES[video.thumbnail.suffix])

    async def show_captions(self, context: PageContext) -> Response:
        _, video = await self._find_video(context)
        track = video.captions.get(context.request.path_params["language"])
        if track is None:
            raise self._build_error(context)
        return _send(track, "text/vtt")

    async def _find_video(self, context: PageContext) -> tuple[LocalChannel, LocalVideo]:
        """Look up the video by its id, which the channel validates."""
        channel = self.channel("")
        if isinstance(channel, LocalChannel) and (video := await channel.video(context.request.path_params["id"])):
            return channel, video
        raise self._build_error(context)

    def _build_error(self, context: PageContext) -> NotFound:
        return NotFound(context.translate(self.missing))


def _send(path: Path, media_type: str) -> Response:
    return FileResponse(path, headers=HEADERS, media_type=media_type)
