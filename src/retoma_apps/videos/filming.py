"""Footage for every scene, and the film that is made of it."""

from __future__ import annotations

import re
import tempfile
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from retoma import Context, Feedback, GiveUp
from retoma_apps.providers.footage import ClipUnusable, Found, chosen, coverage, ranked, relevance
from retoma_apps.videos.media.assembly import Shot, assemble
from retoma_apps.videos.media.probe import probe
from retoma_apps.videos.models import Assembly, Broll, Clip, Language, Narration, Script
from retoma_apps.videos.studio import Studio

MOST_TRIES = 3
_NO_SUBTITLES = re.compile(r"sem (as )?legendas|(no|without) subtitles", re.IGNORECASE)
LONGEST_SHOT = 15.0
"""Seconds after which the eye wants another picture."""


async def searched(script: Script, narration: Narration, language: Language, studio: Studio, ctx: Context) -> Broll:
    """A clip for each shot of each scene. Where a person marked clips, only these are looked for anew."""
    former = Broll.model_validate(ctx.former) if ctx.former and ctx.feedback else None
    queries: dict[str, str] = ctx.feedback.extra.get("queries", {}) if ctx.feedback else {}
    marked = {int(item) for item in (*ctx.feedback.items, *queries) if item.isdigit()} if ctx.feedback else set()
    if former is None or not marked:
        wanted, clips = shots_of(script, narration), list[Clip]()
        for number, shot in enumerate(wanted, 1):
            clips.append(await _filmed(number, *shot, language, studio, ctx, {clip.id for clip in clips}))
    else:
        used = {clip.id for clip in former.clips}
        clips = [
            await _filmed(
                number,
                clip.scene,
                queries.get(str(number), clip.query),
                clip.seconds,
                language,
                studio,
                ctx,
                used,
            )
            if number in marked
            else clip
            for number, clip in enumerate(former.clips, 1)
        ]
    return Broll(
        clips=clips,
        total_seconds=round(sum(clip.seconds for clip in clips), 2),
        audio_seconds=narration.seconds,
        coverage=coverage(clips, narration.seconds),
    )


def shots_of(script: Script, narration: Narration) -> list[tuple[int, str, float]]:
    """Scene, query and seconds of each shot: a scene that is long has several."""
    ends = [*narration.scene_starts[1:], narration.seconds]
    shots = []
    for number, (scene, start, end) in enumerate(zip(script.scenes, narration.scene_starts, ends, strict=True)):
        parts = max(1, round((end - start) / LONGEST_SHOT + 0.49))
        shots += [(number, scene.visual, (end - start) / parts)] * parts
    return [shot for shot in shots if shot[2] > 0]


async def _filmed(
    number: int,
    scene: int,
    query: str,
    seconds: float,
    language: Language,
    studio: Studio,
    ctx: Context,
    avoided: set[str],
) -> Clip:
    async def fetch() -> dict[str, Any]:
        founds = ranked(query, await studio.footage.search(query, language=language, seconds=seconds))
        return (await _fetched(founds, number, scene, query, seconds, studio, ctx, avoided)).model_dump(mode="json")

    return Clip.model_validate(await ctx.once(f"clip {number}", fetch))


async def _fetched(
    founds: Sequence[Found],
    number: int,
    scene: int,
    query: str,
    seconds: float,
    studio: Studio,
    ctx: Context,
    avoided: set[str],
) -> Clip:
    """The best clip that can be used: an outside file may turn out to be none."""
    left = list(founds)
    with tempfile.TemporaryDirectory(prefix="retoma-footage-") as folder:
        video, picture = Path(folder, "clip.mp4"), Path(folder, "clip.jpg")
        for _ in range(MOST_TRIES):
            found = chosen(left, avoided)
            if found is None:
                break
            try:
                await studio.footage.fetch(found, video)
                await studio.footage.picture(found, picture)
            except ClipUnusable:
                left.remove(found)
                continue
            return Clip(
                id=found.id,
                video=await ctx.save_file(video, f"clip_{number:03}.mp4"),
                thumbnail=await ctx.save_file(picture, f"clip_{number:03}_thumb.jpg"),
                source=studio.footage.name,
                query=query,
                seconds=round(seconds, 3),
                relevance=relevance(query, found),
                scene=scene,
                author=found.author,
                url=found.url,
            )
    raise GiveUp(f"there is no footage for {query!r}: describe the scene in other words", "NO_FOOTAGE")


def has_subtitles(feedback: Feedback | None) -> bool:
    """Whether they are burned in: unless a reviewer said not to, by the form or in words."""
    if feedback is None:
        return True
    return bool(feedback.extra.get("subtitles", not _NO_SUBTITLES.search(feedback.notes)))


async def assembled(narration: Narration, broll: Broll, studio: Studio, ctx: Context) -> Assembly:
    shots = [Shot(ctx.path(clip.video), clip.seconds) for clip in broll.clips]
    with tempfile.TemporaryDirectory(prefix="retoma-film-") as folder:
        film = Path(folder, "film.mp4")
        lines = narration.lines if has_subtitles(ctx.feedback) else []
        await assemble(shots, ctx.path(narration.audio), lines, film, size=studio.size, fps=studio.fps)
        seen = await probe(film)
        return Assembly(
            video=await ctx.save_file(film, "film.mp4"),
            seconds=seen.seconds,
            width=seen.width or 0,
            height=seen.height or 0,
            size=seen.size,
        )
