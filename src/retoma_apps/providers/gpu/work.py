"""The work itself: fetch the inputs, render with ffmpeg, keep the outputs."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any, assert_never

from retoma.files import Files
from retoma.outgoing import NoAnswer, Outgoing, UnsafeUrl
from retoma_apps.providers import ffmpeg, fonts
from retoma_apps.providers.captions import Segment, ass_script, burning, parse_srt
from retoma_apps.providers.ffmpeg import FfmpegFailed
from retoma_apps.providers.gpu.orders import (
    LONGEST_SUBTITLES,
    AddAudio,
    Caption,
    Image,
    Img2Vid,
    Picture,
    filename,
    movements,
)
from retoma_apps.providers.gpu.zooms import Zoom, zoom_filter

LARGEST_IMAGE = 50 * 1024**2
LARGEST_MEDIA = 4 * 1024**3
_FETCH_SECONDS = 120.0
_FETCH_MEDIA_SECONDS = 1800.0
_EVEN = "pad=ceil(iw/2)*2:ceil(ih/2)*2"  # H.264 has no odd sizes
_X264 = ["-c:v", "libx264", "-preset", "veryfast", "-crf", "20", "-pix_fmt", "yuv420p"]
_MP4 = ["-movflags", "+faststart", "-f", "mp4"]
_AAC = ["-c:a", "aac", "-b:a", "192k"]


class WorkFailed(Exception):
    """The order cannot be done. `code` is for programs, the message for people."""

    def __init__(self, code: str, message: str, details: str | None = None) -> None:
        super().__init__(message)
        self.code = code
        self.details = details


class Work:
    """Does one order after the other in `folder`, and tells `progress` how far it is, from 0 to 1."""

    def __init__(self, folder: Path, outgoing: Outgoing, files: Files, progress: Callable[[float], None]) -> None:
        self._folder = folder
        self._outgoing = outgoing
        self._files = files
        self._progress = progress

    async def do(self, order: Img2Vid | Caption | AddAudio) -> dict[str, Any]:
        if isinstance(order, Img2Vid):
            return await self._img2vid(order)
        if isinstance(order, Caption):
            return await self._caption(order)
        if isinstance(order, AddAudio):
            return await self._addaudio(order)
        assert_never(order)

    async def _img2vid(self, order: Img2Vid) -> dict[str, Any]:
        """One bad image fails alone; if all are bad, so is the order."""
        videos: list[dict[str, str]] = []
        failed: list[WorkFailed] = []
        lost: list[dict[str, Any]] = []
        moved = zip(order.images, movements(order.images, order.zoom_types), strict=True)
        for done, (image, zoom) in enumerate(moved):
            try:
                videos.append(await self._clip(image, zoom, order, done))
            except WorkFailed as error:
                failed.append(error)
                lost.append({"id": image.id, "code": error.code, "message": str(error), "details": error.details})
        if not videos:
            raise failed[0]
        return {"videos": videos, "failed": lost}

    async def _clip(self, image: Image, zoom: Zoom, order: Img2Vid, done: int) -> dict[str, str]:
        source = await self._fetched(image.image_url, "image", LARGEST_IMAGE, f"Image {image.id}")
        frames = max(1, round(image.duracao * order.picture.fps))
        try:
            await self._rendered(source, zoom, frames, order.picture, self._part(done, len(order.images), frames))
        except FfmpegFailed as error:
            raise await self._image_failure(image, source, error) from error
        kept = await self._kept(order.prefix, filename(image.id))
        self._progress((done + 1) / len(order.images))
        return {"id": image.id, **kept}

    async def _rendered(
        self, source: Path, zoom: Zoom, frames: int, picture: Picture, progress: ffmpeg.Progress
    ) -> None:
        moved = zoom_filter(zoom, frames=frames, width=picture.width, height=picture.height, fps=picture.fps)
        given = ["-err_detect", "explode", *ffmpeg.image_input(source)]
        await ffmpeg.run(
            [*given, "-vf", moved, "-frames:v", str(frames), *_X264, *_MP4, "output.mp4"], self._folder, progress
        )

    async def _image_failure(self, image: Image, source: Path, error: FfmpegFailed) -> WorkFailed:
        """An image that does not even decode is to blame itself; otherwise this machine is."""
        try:
            await ffmpeg.run(
                ["-err_detect", "explode", *ffmpeg.image_input(source), "-frames:v", "1", "-f", "null", "-"],
                self._folder,
            )
        except FfmpegFailed:
            return WorkFailed("CORRUPT_IMAGE", f"Image {image.id} is corrupted", f"FFmpeg failed: {error}")
        return WorkFailed("PROCESSING_ERROR", f"Image {image.id} could not be rendered", f"FFmpeg failed: {error}")

    async def _caption(self, order: Caption) -> dict[str, Any]:
        segments = await self._segments(order)
        source, known = await self._video(order.video_url)
        self._folder.joinpath("captions.ass").write_text(ass_script(segments, order.style), encoding="utf-8")
        fonts.link(self._folder / "fonts")
        burned = ["-vf", f"{_EVEN},{burning('captions.ass', 'fonts')}"]
        kept_audio = ["-map", "0:v:0", "-map", "0:a?", *_AAC]
        await self._made([*ffmpeg.media_input(source), *burned, *kept_audio, *_X264], known)
        return await self._kept(order.prefix, "captioned.mp4")

    async def _segments(self, order: Caption) -> list[Segment]:
        if order.subtitles_url is None:
            return order.segments()
        path = await self._fetched(order.subtitles_url, "subtitles", LONGEST_SUBTITLES, "The subtitles file")
        return _parsed(path.read_text(encoding="utf-8", errors="replace"))

    async def _addaudio(self, order: AddAudio) -> dict[str, Any]:
        video, known = await self._video(order.video_url)
        audio = await self._fetched(order.audio_url, "audio", LARGEST_MEDIA, "The audio")
        if not (await _probed(audio, "The audio")).has_audio:
            raise WorkFailed("CORRUPT_AUDIO", "The audio has no sound in it")
        same_picture = ["-c:v", "copy"] if ffmpeg.media_kind(video) == "mov" else ["-vf", _EVEN, *_X264]
        given = [*ffmpeg.media_input(video), *ffmpeg.media_input(audio), "-filter_complex", _mix(order.volume, known)]
        await self._made([*given, "-map", "0:v:0", "-map", "[sound]", *same_picture, *_AAC], known)
        return await self._kept(order.prefix, "with_audio.mp4")

    async def _made(self, arguments: list[str], video: ffmpeg.Probe) -> None:
        """Render, with the progress that the video's length gives."""
        frames = round((video.seconds or 60) * 30)
        try:
            await ffmpeg.run([*arguments, *_MP4, "output.mp4"], self._folder, self._part(0, 1, frames))
        except FfmpegFailed as error:
            raise WorkFailed(
                "PROCESSING_ERROR", "The video could not be rendered", f"FFmpeg failed: {error}"
            ) from error

    async def _video(self, url: str) -> tuple[Path, ffmpeg.Probe]:
        path = await self._fetched(url, "video", LARGEST_MEDIA, "The video")
        known = await _probed(path, "The video")
        if not known.has_video:
            raise WorkFailed("CORRUPT_VIDEO", "The video has no picture in it")
        return path, known

    async def _fetched(self, url: str, name: str, limit: int, what: str) -> Path:
        path = self._folder / name
        seconds = _FETCH_MEDIA_SECONDS if limit > LARGEST_IMAGE else _FETCH_SECONDS
        try:
            await self._outgoing.download(url, path, limit=limit, timeout=seconds)
        except UnsafeUrl as error:
            raise WorkFailed("UNSAFE_URL", f"{what} cannot be fetched: {error}") from error
        except NoAnswer as error:
            raise WorkFailed("DOWNLOAD_FAILED", f"{what} cannot be fetched: {error}") from error
        return path

    async def _kept(self, prefix: str, name: str) -> dict[str, str]:
        url = await self._files.put(self._folder / "output.mp4", prefix + name)
        return {"video_url": url, "filename": name}

    def _part(self, done: int, parts: int, frames: int) -> ffmpeg.Progress:
        return lambda frame: self._progress((done + min(frame / max(frames, 1), 1.0)) / parts)


def _mix(volume: float, video: ffmpeg.Probe) -> str:
    """The added audio, no longer than the video, over whatever sound the video has."""
    added = f"[1:a]volume={volume:g}" + (f",atrim=end={video.seconds:g}" if video.seconds else "")
    return f"{added}[added];[0:a][added]amix=inputs=2:normalize=0[sound]" if video.has_audio else f"{added}[sound]"


async def _probed(path: Path, what: str) -> ffmpeg.Probe:
    try:
        return await ffmpeg.probe(path)
    except FfmpegFailed as error:
        kind = "AUDIO" if what == "The audio" else "VIDEO"
        raise WorkFailed(f"CORRUPT_{kind}", f"{what} is corrupted", str(error)) from error


def _parsed(subtitles: str) -> list[Segment]:
    try:
        return parse_srt(subtitles)
    except ValueError as error:
        raise WorkFailed("INVALID_INPUT", f"The subtitles cannot be read: {error}") from error
