"""Put the scenes together: the film, its subtitles in all languages, and its thumbnails."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping, Sequence
from dataclasses import asdict
from itertools import accumulate

from retoma import Context
from retoma_apps.media.assembly import join_clips
from retoma_apps.media.headlines import thumbnail_texts
from retoma_apps.media.models import Line
from retoma_apps.media.narration import Joined, join, pad_sound
from retoma_apps.media.subtitle_lines import build_subtitle_lines
from retoma_apps.media.subtitles import srt, vtt
from retoma_apps.media.temp_dir import temp_dir
from retoma_apps.media.thumbnails import LAYOUTS, PALETTES, draw_thumbnail
from retoma_apps.stories.models import (
    Film,
    Scene,
    SceneAudio,
    SceneClip,
    SceneImage,
    SceneTranslation,
    Thumbnail,
    Thumbnails,
    Track,
)
from retoma_apps.stories.services import Services


async def assemble_film(
    clips: Sequence[SceneClip],
    voices: Sequence[SceneAudio],
    translations: Sequence[SceneTranslation],
    *,
    language: str,
    services: Services,
    ctx: Context,
) -> Film:
    """Join the scenes, and write one subtitle track for the narration and one for each translation."""
    starts = [0.0, *accumulate(clip.seconds for clip in clips)][:-1]
    with temp_dir("film") as folder:
        sound, film = folder / "narration.wav", folder / "film.mp4"
        spoken = [
            await asyncio.to_thread(pad_sound, ctx.path(voice.audio), clip.seconds)
            for voice, clip in zip(voices, clips, strict=True)
        ]
        await join(spoken, sound, gap=0, scene_gap=0)
        joined = await join_clips([ctx.path(clip.video) for clip in clips], sound, film, size=services.size)
        own = [_shift(line, start) for voice, start in zip(voices, starts, strict=True) for line in voice.lines]
        tracks = [await _save_track(language, own, ctx)]
        for other, texts in _group_by_language(translations).items():
            lines = _time_translation(texts, voices, starts, joined.seconds)
            tracks.append(await _save_track(other, lines, ctx))
        return Film(video=await ctx.save_file(film, "film.mp4"), **asdict(joined), starts=starts, tracks=tracks)


def _group_by_language(translations: Sequence[SceneTranslation]) -> Mapping[str, list[str]]:
    """Return the texts of all scenes in order, by language."""
    texts: dict[str, list[str]] = {}
    for each in translations:
        texts.setdefault(each.language, []).append(each.text)
    return texts


def _time_translation(
    texts: Sequence[str], voices: Sequence[SceneAudio], starts: Sequence[float], seconds: float
) -> list[Line]:
    """Show the translation of a scene while the scene is spoken."""
    ends = [start + voice.seconds for start, voice in zip(starts, voices, strict=True)]
    return build_subtitle_lines(texts, [[] for _ in texts], Joined(seconds, tuple(starts), tuple(ends)))


def _shift(line: Line, start: float) -> Line:
    return Line(text=line.text, start=round(line.start + start, 3), end=round(line.end + start, 3))


async def _save_track(language: str, lines: Sequence[Line], ctx: Context) -> Track:
    return Track(
        language=language,
        srt=await ctx.save_file(srt(lines).encode(), f"subtitles-{language}.srt"),
        vtt=await ctx.save_file(vtt(lines).encode(), f"subtitles-{language}.vtt"),
    )


async def draw_thumbnails(
    topic: str, scenes: Sequence[Scene], pictures: Sequence[SceneImage], ctx: Context
) -> Thumbnails:
    """Draw a few words on pictures of the story itself, which costs nothing."""
    variants = []
    texts = thumbnail_texts(topic, " ".join(scene.text for scene in scenes))
    for number, text in enumerate(texts):
        picture = pictures[number * len(pictures) // len(texts)]
        with temp_dir("thumbnail") as folder:
            drawn = folder / f"variant-{number + 1}.png"
            background = await asyncio.to_thread(ctx.path(picture.image).read_bytes)
            await asyncio.to_thread(draw_thumbnail, background, text, drawn, PALETTES[number], LAYOUTS[number])
            variants.append(Thumbnail(image=await ctx.save_file(drawn, drawn.name), text=text))
    return Thumbnails(variants=variants)
