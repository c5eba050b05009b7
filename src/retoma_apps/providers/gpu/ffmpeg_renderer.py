"""Download the inputs, render with ffmpeg, and store the outputs."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any, assert_never

from retoma.files import FileStore
from retoma.outgoing import HttpClient, NoResponse, UnsafeUrl
from retoma_apps.providers import ffmpeg, fonts
from retoma_apps.providers.captions import Segment, ass_script, parse_srt, subtitle_filter
from retoma_apps.providers.ffmpeg import FfmpegFailed
from retoma_apps.providers.gpu.render_requests import (
    LONGEST_SUBTITLES,
    AddAudio,
    Caption,
    Image,
    Img2Vid,
    VideoFormat,
    filename,
    resolve_zooms,
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


class RenderFailed(Exception):
    """The request cannot be rendered. `code` is for programs, the message for people."""

    def __init__(self, code: str, message: str, details: str | None = None) -> None:
        super().__init__(message)
        self.code = code
        self.details = details


class FfmpegRenderer:
    """Renders requests one by one in `folder` and reports progress from 0 to 1."""

    def __init__(self, folder: Path, outgoing: HttpClient, files: FileStore, progress: Callable[[float], None]) -> None:
        self._folder = folder
        self._outgoing = outgoing
        self._files = files
        self._progress = progress

    async def render(self, request: Img2Vid | Caption | AddAudio) -> dict[str, Any]:
        if isinstance(request, Img2Vid):
            return await self._img2vid(request)
        if isinstance(request, Caption):
            return await self._caption(request)
        if isinstance(request, AddAudio):
            return await self._addaudio(request)
        assert_never(request)

    async def _img2vid(self, request: Img2Vid) -> dict[str, Any]:
        """Render each image. A bad image fails alone; the request fails only if all do."""
        videos: list[dict[str, str]] = []
        errors: list[RenderFailed] = []
        failures: list[dict[str, Any]] = []
        zoomed = zip(request.images, resolve_zooms(request.images, request.zoom_types), strict=True)
        for done, (image, zoom) in enumerate(zoomed):
            try:
                videos.append(await self._render_clip(image, zoom, request, done))
            except RenderFailed as error:
                errors.append(error)
                failures.append({"id": image.id, "code": error.code, "message": str(error), "details": error.details})
        if not videos:
            raise errors[0]
        return {"videos": videos, "failed": failures}

    async def _render_clip(self, image: Image, zoom: Zoom, request: Img2Vid, done: int) -> dict[str, str]:
        source = await self._fetch(image.image_url, "image", LARGEST_IMAGE, f"Image {image.id}")
        frames = max(1, round(image.duracao * request.picture.fps))
        try:
            await self._render_image(
                source, zoom, frames, request.picture, self._scale_progress(done, len(request.images), frames)
            )
        except FfmpegFailed as error:
            raise await self._image_failure(image, source, error) from error
        stored = await self._store_output(request.prefix, filename(image.id))
        self._progress((done + 1) / len(request.images))
        return {"id": image.id, **stored}

    async def _render_image(
        self, source: Path, zoom: Zoom, frames: int, picture: VideoFormat, progress: ffmpeg.Progress
    ) -> None:
        filters = zoom_filter(zoom, frames=frames, width=picture.width, height=picture.height, fps=picture.fps)
        source_input = ["-err_detect", "explode", *ffmpeg.image_input(source)]
        await ffmpeg.run(
            [*source_input, "-vf", filters, "-frames:v", str(frames), *_X264, *_MP4, "output.mp4"],
            self._folder,
            progress,
        )

    async def _image_failure(self, image: Image, source: Path, error: FfmpegFailed) -> RenderFailed:
        """Return CORRUPT_IMAGE if the image does not decode; otherwise this machine is at fault."""
        try:
            await ffmpeg.run(
                ["-err_detect", "explode", *ffmpeg.image_input(source), "-frames:v", "1", "-f", "null", "-"],
                self._folder,
            )
        except FfmpegFailed:
            return RenderFailed("CORRUPT_IMAGE", f"Image {image.id} is corrupted", f"FFmpeg failed: {error}")
        return RenderFailed("PROCESSING_ERROR", f"Image {image.id} could not be rendered", f"FFmpeg failed: {error}")

    async def _caption(self, request: Caption) -> dict[str, Any]:
        segments = await self._segments(request)
        source, known = await self._fetch_video(request.video_url)
        self._folder.joinpath("captions.ass").write_text(ass_script(segments, request.style), encoding="utf-8")
        fonts.link_fonts(self._folder / "fonts")
        burned = ["-vf", f"{_EVEN},{subtitle_filter('captions.ass', 'fonts')}"]
        kept_audio = ["-map", "0:v:0", "-map", "0:a?", *_AAC]
        await self._render_video([*ffmpeg.media_input(source), *burned, *kept_audio, *_X264], known)
        return await self._store_output(request.prefix, "captioned.mp4")

    async def _segments(self, request: Caption) -> list[Segment]:
        if request.subtitles_url is None:
            return request.segments()
        path = await self._fetch(request.subtitles_url, "subtitles", LONGEST_SUBTITLES, "The subtitles file")
        return _parse_subtitles(path.read_text(encoding="utf-8", errors="replace"))

    async def _addaudio(self, request: AddAudio) -> dict[str, Any]:
        video, known = await self._fetch_video(request.video_url)
        audio = await self._fetch(request.audio_url, "audio", LARGEST_MEDIA, "The audio")
        if not (await _probe(audio, "The audio")).has_audio:
            raise RenderFailed("CORRUPT_AUDIO", "The audio file has no audio stream")
        same_picture = ["-c:v", "copy"] if ffmpeg.media_kind(video) == "mov" else ["-vf", _EVEN, *_X264]
        inputs = [
            *ffmpeg.media_input(video),
            *ffmpeg.media_input(audio),
            "-filter_complex",
            _mix(request.volume, known),
        ]
        await self._render_video([*inputs, "-map", "0:v:0", "-map", "[sound]", *same_picture, *_AAC], known)
        return await self._store_output(request.prefix, "with_audio.mp4")

    async def _render_video(self, arguments: list[str], video: ffmpeg.Probe) -> None:
        """Render, with progress derived from the video's length."""
        frames = round((video.seconds or 60) * 30)
        try:
            await ffmpeg.run([*arguments, *_MP4, "output.mp4"], self._folder, self._scale_progress(0, 1, frames))
        except FfmpegFailed as error:
            raise RenderFailed(
                "PROCESSING_ERROR", "The video could not be rendered", f"FFmpeg failed: {error}"
            ) from error

    async def _fetch_video(self, url: str) -> tuple[Path, ffmpeg.Probe]:
        path = await self._fetch(url, "video", LARGEST_MEDIA, "The video")
        known = await _probe(path, "The video")
        if not known.has_video:
            raise RenderFailed("CORRUPT_VIDEO", "The video file has no video stream")
        return path, known

    async def _fetch(self, url: str, name: str, limit: int, description: str) -> Path:
        path = self._folder / name
        seconds = _FETCH_MEDIA_SECONDS if limit > LARGEST_IMAGE else _FETCH_SECONDS
        try:
            await self._outgoing.download(url, path, limit=limit, timeout=seconds)
        except UnsafeUrl as error:
            raise RenderFailed("UNSAFE_URL", f"{description} could not be downloaded: {error}") from error
        except NoResponse as error:
            raise RenderFailed("DOWNLOAD_FAILED", f"{description} could not be downloaded: {error}") from error
        return path

    async def _store_output(self, prefix: str, name: str) -> dict[str, str]:
        url = await self._files.put(self._folder / "output.mp4", prefix + name)
        return {"video_url": url, "filename": name}

    def _scale_progress(self, done: int, parts: int, frames: int) -> ffmpeg.Progress:
        return lambda frame: self._progress((done + min(frame / max(frames, 1), 1.0)) / parts)


def _mix(volume: float, video: ffmpeg.Probe) -> str:
    """Mix the added audio, cut to the video's length, with the video's own sound."""
    added = f"[1:a]volume={volume:g}" + (f",atrim=end={video.seconds:g}" if video.seconds else "")
    return f"{added}[added];[0:a][added]amix=inputs=2:normalize=0[sound]" if video.has_audio else f"{added}[sound]"


async def _probe(path: Path, description: str) -> ffmpeg.Probe:
    try:
        return await ffmpeg.probe(path)
    except FfmpegFailed as error:
        kind = "AUDIO" if description == "The audio" else "VIDEO"
        raise RenderFailed(f"CORRUPT_{kind}", f"{description} is corrupted", str(error)) from error


def _parse_subtitles(subtitles: str) -> list[Segment]:
    try:
        return parse_srt(subtitles)
    except ValueError as error:
        raise RenderFailed("INVALID_INPUT", f"The subtitles are invalid: {error}") from error
