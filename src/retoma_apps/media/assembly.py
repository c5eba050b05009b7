"""Assemble the film: shots that fill the frame and cross-fade, the narration, and burned-in subtitles."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from dataclasses import dataclass, replace
from itertools import pairwise
from pathlib import Path

from retoma_apps.media.atomic_write import write_atomically
from retoma_apps.media.models import Line
from retoma_apps.media.subtitles import ass
from retoma_apps.providers import ffmpeg, fonts
from retoma_apps.providers.captions import subtitle_filter
from retoma_apps.providers.ffmpeg import FfmpegFailed

FADE = 0.5
MAX_LENGTH_DIFFERENCE = 0.2
"""Seconds by which a film's length may differ from its narration."""
SHOTS_PER_SEGMENT = 8
"""Shots rendered at a time: each keeps a decoder open, and memory must not grow with the film's length."""
X264 = ["-c:v", "libx264", "-preset", "veryfast", "-crf", "21", "-pix_fmt", "yuv420p"]
# Both channels get the unchanged narration: ffmpeg's default mix from mono to stereo reduces it by 3 dB.
_AAC = ["-af", "pan=stereo|c0=c0|c1=c0", "-c:a", "aac", "-b:a", "192k", "-ar", "48000"]


@dataclass(frozen=True)
class Shot:
    """A clip, and for how many seconds it is shown; it is cut or looped to that length. `transition` is how ffmpeg's
    `xfade` replaces the previous shot."""

    path: Path
    seconds: float
    transition: str = "fade"


@dataclass(frozen=True)
class Film:
    seconds: float
    width: int
    height: int
    size: int


class BadShot(FfmpegFailed):
    """The clip of this shot, counted from 1, cannot be decoded."""

    def __init__(self, number: int, why: str) -> None:
        super().__init__(f"the clip of shot {number} cannot be decoded: {why}")
        self.number = number


@dataclass(frozen=True)
class _Take:
    """Frames of one clip in a segment: the previous segment has shown `skip`; the last `fade` overlap the next take."""

    shot: int
    skip: int
    frames: int
    fade: int


@dataclass(frozen=True)
class _Segment:
    """A part of the film that is rendered at a time, starting at this frame of it."""

    start: int
    frames: int
    takes: tuple[_Take, ...]


async def assemble(
    shots: Sequence[Shot],
    narration: Path,
    lines: Sequence[Line],
    to: Path,
    *,
    size: tuple[int, int] = (1920, 1080),
    fps: int = 30,
) -> Film:
    """Write an MP4 as long as the narration: the last shot is cut or extended. `to` is written atomically."""
    seconds = (await ffmpeg.probe(narration)).seconds or 0.0
    total = max(1, round(seconds * fps))
    segments = _plan_segments(_frame_counts(shots, total, fps), round(FADE * fps))
    with write_atomically(to, "film.mp4") as folder:
        _link_inputs(folder, shots, narration)
        for number, segment in enumerate(segments):
            await _SegmentRenderer(folder, shots, lines, size, fps).render(number, segment)
        return await _finish_film(folder, len(segments), seconds, size)


async def join_clips(clips: Sequence[Path], narration: Path, to: Path, *, size: tuple[int, int]) -> Film:
    """Write an MP4 of rendered clips, one after the other and unchanged, with a narration of the same length."""
    seconds = (await ffmpeg.probe(narration)).seconds or 0.0
    with write_atomically(to, "film.mp4") as folder:
        _link_clips(folder, clips, narration)
        return await _finish_film(folder, len(clips), seconds, size)


def _frame_counts(shots: Sequence[Shot], total: int, fps: int) -> list[tuple[int, int]]:
    """Return the number and frames of each visible shot; the frames sum up to `total`."""
    cuts, at = [0], 0.0
    for shot in shots:
        at += max(shot.seconds, 0)
        cuts.append(min(round(at * fps), total))
    seen = [(number, after - before) for number, (before, after) in enumerate(pairwise(cuts)) if after > before]
    if not seen:
        raise ValueError("there is nothing to show: no shot has any length")
    last, frames = seen[-1]
    return [*seen[:-1], (last, frames + total - sum(length for _, length in seen))]


def _plan_segments(lengths: Sequence[tuple[int, int]], fade: int) -> list[_Segment]:
    """Split the film in the middle of shots, never in a fade, so the segments can be concatenated unchanged."""
    segments: list[_Segment] = []
    takes = _plan_takes(lengths, fade)
    for first in range(0, max(len(takes) - 1, 1), SHOTS_PER_SEGMENT):
        part = takes[first : first + SHOTS_PER_SEGMENT + 1]
        if first:
            middle = _middle(part[0], lengths[first][1])
            part[0] = replace(part[0], skip=middle, frames=part[0].frames - middle)
        if first + SHOTS_PER_SEGMENT + 1 < len(takes):
            part[-1] = replace(part[-1], frames=_middle(part[-1], lengths[first + SHOTS_PER_SEGMENT][1]), fade=0)
        start = segments[-1].start + segments[-1].frames if segments else 0
        segments.append(_Segment(start, sum(take.frames - take.fade for take in part), tuple(part)))
    return segments


def _plan_takes(lengths: Sequence[tuple[int, int]], fade: int) -> list[_Take]:
    """Centre each fade on its cut, and shorten it if a shot is shorter."""
    fades = [min(fade, one, other) for (_, one), (_, other) in pairwise(lengths)]
    leads, tails = [0, *(each // 2 for each in fades)], [*(each - each // 2 for each in fades), 0]
    return [
        _Take(shot, 0, lead + length + tail, after)
        for (shot, length), lead, tail, after in zip(lengths, leads, tails, [*fades, 0], strict=True)
    ]


def _middle(take: _Take, length: int) -> int:
    """Return the middle of a shot's visible frames, after the frames that fade in."""
    tail = take.fade - take.fade // 2
    return take.frames - tail - length // 2


def _link_inputs(folder: Path, shots: Sequence[Shot], narration: Path) -> None:
    fonts.link_fonts(folder / "fonts")
    (folder / "narration").symlink_to(narration.resolve())
    for number, shot in enumerate(shots):
        (folder / f"shot-{number}").symlink_to(shot.path.resolve())


@dataclass(frozen=True)
class _SegmentRenderer:
    folder: Path
    shots: Sequence[Shot]
    lines: Sequence[Line]
    size: tuple[int, int]
    fps: int

    async def render(self, number: int, segment: _Segment) -> None:
        script = ass(self.lines, segment.start / self.fps, (segment.start + segment.frames) / self.fps)
        (self.folder / "lines.ass").write_text(script, encoding="utf-8")
        try:
            inputs = [each for take in segment.takes for each in self._input(take)]
            output = [
                "-filter_complex",
                self._filter_graph(segment),
                "-map",
                "[film]",
                "-frames:v",
                str(segment.frames),
            ]
            await ffmpeg.run([*inputs, *output, *X264, "-f", "mp4", f"reel-{number}.mp4"], self.folder)
        except FfmpegFailed as error:
            await self._raise_bad_shot(segment)
            raise error

    def _input(self, take: _Take) -> list[str]:
        """Return the input without sound, looped."""
        return ["-stream_loop", "-1", "-an", *ffmpeg.media_input(self.folder / f"shot-{take.shot}")]

    def _filter_graph(self, segment: _Segment) -> str:
        clips = [f"[{at}:v:0]{self._scale_filter(take)}[clip{at}]" for at, take in enumerate(segment.takes)]
        return ";".join(
            [
                *clips,
                *self._fade_filters(segment),
                f"[fade{len(segment.takes) - 1}]{subtitle_filter('lines.ass', 'fonts')}[film]",
            ]
        )

    def _scale_filter(self, take: _Take) -> str:
        wide, high = self.size
        return (
            f"setpts=PTS-STARTPTS,fps={self.fps},trim=start_frame={take.skip}:end_frame={take.skip + take.frames},"
            f"setpts=PTS-STARTPTS,scale={wide}:{high}:force_original_aspect_ratio=increase:out_range=tv,"
            f"crop={wide}:{high},setsar=1,format=yuv420p,fps={self.fps}"
        )

    def _fade_filters(self, segment: _Segment) -> list[str]:
        """Fade each take onto the previous result, named fade0, fade1 and so on."""
        chain, length = ["[clip0]null[fade0]"], segment.takes[0].frames
        for at, (before, take) in enumerate(pairwise(segment.takes), 1):
            length -= before.fade
            times = f"duration={before.fade / self.fps:.6f}:offset={length / self.fps:.6f}"
            chain.append(
                f"[fade{at - 1}][clip{at}]xfade=transition={self.shots[take.shot].transition}:{times}[fade{at}]"
            )
            length += take.frames
        return chain

    async def _raise_bad_shot(self, segment: _Segment) -> None:
        """Raise BadShot for the first clip that cannot be decoded even alone."""
        for take in segment.takes:
            path = self.folder / f"shot-{take.shot}"
            try:
                await ffmpeg.run(
                    [*ffmpeg.media_input(path), "-map", "0:v:0", "-frames:v", "1", "-f", "null", "-"], self.folder
                )
            except FfmpegFailed as error:
                raise BadShot(take.shot + 1, str(error)) from error


def _link_clips(folder: Path, clips: Sequence[Path], narration: Path) -> None:
    (folder / "narration").symlink_to(narration.resolve())
    for number, clip in enumerate(clips):
        (folder / f"reel-{number}.mp4").symlink_to(clip.resolve())


async def _finish_film(folder: Path, segments: int, seconds: float, size: tuple[int, int]) -> Film:
    await _concatenate(folder, segments)
    path = folder / "film.mp4"
    film = await ffmpeg.probe(path)
    _verify(film, seconds, size)
    return Film(film.seconds or 0.0, *size, (await asyncio.to_thread(path.stat)).st_size)


async def _concatenate(folder: Path, segments: int) -> None:
    """Join the segments unchanged, with the narration."""
    listed = "".join(f"file reel-{number}.mp4\n" for number in range(segments))
    (folder / "reels.txt").write_text(f"ffconcat version 1.0\n{listed}", encoding="utf-8")
    inputs = ["-f", "concat", "-i", "reels.txt", *ffmpeg.media_input(folder / "narration")]
    output = ["-map", "0:v:0", "-map", "1:a:0", "-c:v", "copy", *_AAC, "-movflags", "+faststart"]
    await ffmpeg.run([*inputs, *output, "-f", "mp4", "film.mp4"], folder)


def _verify(film: ffmpeg.Probe, seconds: float, size: tuple[int, int]) -> None:
    if abs((film.seconds or 0.0) - seconds) > MAX_LENGTH_DIFFERENCE:
        raise FfmpegFailed(f"the film has {film.seconds or 0.0:.2f} s, but its narration {seconds:.2f} s")
    if (film.width, film.height) != size or film.audio_codec is None:
        raise FfmpegFailed(f"the film came out as {film.width}x{film.height} with the audio codec {film.audio_codec}")
