"""Find footage for every scene, and assemble the film from it."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import asdict
from itertools import accumulate
from typing import Any, NamedTuple

from retoma import Context, GiveUp
from retoma.reviews import Comment, Feedback
from retoma_apps.media.assembly import Shot, assemble
from retoma_apps.media.models import Language
from retoma_apps.media.temp_dir import temp_dir
from retoma_apps.providers.footage import (
    ClipUnavailable,
    ClipUnusable,
    FoundClip,
    choose_clip,
    coverage,
    rank_clips,
    relevance,
)
from retoma_apps.providers.footage.offline import OfflineFootage
from retoma_apps.videos.models import Assembly, Broll, Clip, Narration, Script
from retoma_apps.videos.services import Services

MAX_CLIP_ATTEMPTS = 3
MIN_SEEN_SECONDS = 0.5  # a range that ends shortly after a cut is not about the next clip
_DRAWN_TRANSITIONS = ("slideleft", "wipeleft", "slideright", "wiperight")
_WITHOUT_SUBTITLES = re.compile(r"sem (as )?legendas|(no|without) subtitles", re.IGNORECASE)
_WITH_SUBTITLES = re.compile(r"com (as )?legendas|with subtitles", re.IGNORECASE)


class WantedShot(NamedTuple):
    """A shot of a scene, and the search for its clip."""

    scene: int
    query: str
    seconds: float


async def search_footage(
    script: Script, narration: Narration, language: Language, services: Services, ctx: Context
) -> Broll:
    """Find a clip for each shot of each scene. If sent back, replace the marked clips, or all if none is marked."""
    previous = Broll.model_validate(ctx.previous_result) if ctx.previous_result else None
    longest = services.footage.longest_shot
    wanted, kept, refused = (
        plan_shots(script, narration, longest),
        dict[int, Clip](),
        previous.refused if previous else [],
    )
    if previous and ctx.feedback:
        wanted, kept, refused = _split_sent_back(previous, ctx.feedback)
    clips = list[Clip]()
    for number, shot in enumerate(wanted, 1):
        avoided = {*refused, *(clip.id for clip in (*kept.values(), *clips))}
        try:
            clips.append(kept.get(number) or await _find_clip(number, shot, language, services, ctx, avoided))
        except GiveUp:
            if previous is None or ctx.feedback is None:
                raise
            clips.append(previous.clips[number - 1])  # without a better one, keep it for the reviewer
    return Broll(
        clips=clips,
        total_seconds=round(sum(clip.seconds for clip in clips), 2),
        audio_seconds=narration.seconds,
        coverage=coverage((clip.filled_seconds for clip in clips), narration.seconds),
        refused=refused,
    )


def plan_shots(script: Script, narration: Narration, longest: float) -> list[WantedShot]:
    """Return the shots of each scene; one that is longer than `longest` seconds has several."""
    if len(script.scenes) != len(narration.scene_starts):
        raise GiveUp(
            f"the script has {len(script.scenes)} scenes, but its narration {len(narration.scene_starts)}, because one "
            "of them was edited: rerun audio_generation",
            "SCENES_DIFFER",
        )
    ends = [*narration.scene_starts[1:], narration.seconds]
    shots = []
    for number, (scene, start, end) in enumerate(zip(script.scenes, narration.scene_starts, ends, strict=True)):
        parts = max(1, round((end - start) / longest + 0.49))
        shots += [WantedShot(number, scene.visual, (end - start) / parts)] * parts
    return [shot for shot in shots if shot.seconds > 0]


def _split_sent_back(previous: Broll, feedback: Feedback) -> tuple[list[WantedShot], dict[int, Clip], list[str]]:
    """Return the shots of footage that was sent back, the clips to keep by number, and the ids of all replaced
    clips."""
    clips = dict(enumerate(previous.clips, 1))
    queries: dict[str, str] = feedback.extra.get("queries", {})
    named = {number for number in clips if str(number) in (*feedback.items, *queries)}
    marked = named | find_commented_clips(previous.clips, feedback.comments) or clips.keys()
    wanted = [WantedShot(clip.scene, queries.get(str(at)) or clip.query, clip.seconds) for at, clip in clips.items()]
    kept = {number: clip for number, clip in clips.items() if number not in marked}
    return wanted, kept, [*previous.refused, *(clips[number].id for number in marked)]


def find_commented_clips(clips: Sequence[Clip], comments: Sequence[Comment]) -> set[int]:
    """Return the numbers of the clips that are shown at a comment's moment, or for most of a second of its range."""
    ends = list(accumulate(clip.seconds for clip in clips))
    starts = [0.0, *ends[:-1]]
    moments = [
        (comment.at, comment.at if comment.to is None else comment.to) for comment in comments if comment.at is not None
    ]
    return {
        number
        for number, (start, end) in enumerate(zip(starts, ends, strict=True), 1)
        for first, last in moments
        if start <= first < end or min(end, last) - max(start, first) > MIN_SEEN_SECONDS
    }


async def _find_clip(
    number: int, shot: WantedShot, language: Language, services: Services, ctx: Context, avoided: set[str]
) -> Clip:
    async def fetch() -> dict[str, Any]:
        found = await services.footage.search(shot.query, language=language, seconds=shot.seconds)
        clip = await _fetch_best(rank_clips(shot.query, found), number, shot, services, ctx, avoided)
        return clip.model_dump(mode="json")

    return Clip.model_validate(await ctx.once(f"clip {number}", fetch))


async def _fetch_best(
    candidates: Sequence[FoundClip], number: int, shot: WantedShot, services: Services, ctx: Context, avoided: set[str]
) -> Clip:
    """Return the best clip that can be downloaded and used: a file may be gone, or not be a video."""
    left, unavailable = list(candidates), list[ClipUnavailable]()
    with temp_dir("footage") as folder:
        video, picture = folder / "clip.mp4", folder / "clip.jpg"
        for _ in range(MAX_CLIP_ATTEMPTS):
            found = choose_clip(left, avoided)
            if found is None:
                break
            try:
                await services.footage.fetch(found, video)
                await services.footage.fetch_thumbnail(found, picture)
            except (ClipUnusable, ClipUnavailable) as error:
                left.remove(found)
                unavailable += [error] if isinstance(error, ClipUnavailable) else []
                continue
            return Clip(
                id=found.id,
                video=await ctx.save_file(video, f"clip_{number:03}.mp4"),
                thumbnail=await ctx.save_file(picture, f"clip_{number:03}_thumb.jpg"),
                source=services.footage.name,
                query=shot.query,
                seconds=round(shot.seconds, 3),
                own_seconds=round(found.seconds, 3),
                relevance=relevance(shot.query, found),
                scene=shot.scene,
                author=found.author,
                url=found.url,
            )
    if unavailable:
        raise unavailable[0]  # a retry may succeed
    raise GiveUp(f"there is no footage for {shot.query!r}: describe the scene in other words", "NO_FOOTAGE")


def has_subtitles(feedback: Feedback | None, current: bool) -> bool:
    """Return whether to burn in subtitles: as the form or the notes say, else as in `current`."""
    if feedback is None:
        return current
    in_words = not _WITHOUT_SUBTITLES.search(feedback.text) and (current or bool(_WITH_SUBTITLES.search(feedback.text)))
    return bool(feedback.extra.get("subtitles", in_words))


def choose_transition(number: int, clip: Clip) -> str:
    """Return how a clip replaces the previous one. Drawn clips contain text, and two texts must not be seen through
    each other."""
    return _DRAWN_TRANSITIONS[number % len(_DRAWN_TRANSITIONS)] if clip.source == OfflineFootage.name else "fade"


async def assemble_film(narration: Narration, broll: Broll, services: Services, ctx: Context) -> Assembly:
    previous = Assembly.model_validate(ctx.previous_result) if ctx.previous_result else None
    subtitles = has_subtitles(ctx.feedback, previous.subtitles if previous else True)
    shots = [
        Shot(ctx.path(clip.video), clip.seconds, choose_transition(number, clip))
        for number, clip in enumerate(broll.clips)
    ]
    with temp_dir("film") as folder:
        film = folder / "film.mp4"
        lines = narration.lines if subtitles else []
        assembled = await assemble(shots, ctx.path(narration.audio), lines, film, size=services.size, fps=services.fps)
        return Assembly(
            video=await ctx.save_file(film, "film.mp4"),
            **asdict(assembled),
            subtitles=subtitles,
        )
