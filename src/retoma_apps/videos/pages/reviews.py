"""What reviewers of a video see besides the result: what is spoken over each clip, and checks of the film."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import accumulate
from typing import Any

from retoma.records import Review, Run
from retoma.server import PageContext
from retoma_apps.media.assembly import MAX_LENGTH_DIFFERENCE
from retoma_apps.media.models import Line
from retoma_apps.media.spoken_text import seconds_for_words, word_count
from retoma_apps.media.voices import can_speak
from retoma_apps.providers.speech import KNOWN_VOICES
from retoma_apps.videos.models import Assembly, Broll, Clip, Narration, Script
from retoma_apps.videos.services import Services

WAVEFORM_URL = "/videos/waveforms/{run}/{digest}"
LONGEST_SHOT_SECONDS = 20
MIN_COVERAGE = 95  # per cent
TITLE_ON_PHONES = 60  # characters of a title that a phone shows


@dataclass(frozen=True)
class ShownClip:
    """When a clip is shown, in seconds of the film, and what is spoken meanwhile."""

    start: float
    end: float
    spoken: str


@dataclass(frozen=True)
class FilmCheck:
    """A finding about a film, as a sentence. `at` is where to look, in seconds."""

    is_met: bool
    text: str
    at: float | None = None


async def get_review_values(context: PageContext, review: Review) -> Mapping[str, Any]:
    """Return values for the templates of all four reviews. Those of steps that have not run yet are empty."""
    run = await context.client.runs.get(review.run)
    results = await context.client.runs.get_results(review.run, revision=review.revision)
    narration, broll, script, film = (
        _load(kind, results.get(step))
        for kind, step in (
            (Narration, "audio_review"),
            (Broll, "broll_search"),
            (Script, "script_generation"),
            (Assembly, "video_assembly"),
        )
    )
    lines = narration.lines if narration else []
    shown = list_shown_clips(broll.clips, lines) if broll else []
    services: Services = await context.client.get_resource("services", tenant=run.tenant)
    return {
        "field_choices": {"feedback.voice": _list_voices(services, run)},
        "peaks_url": lambda file: WAVEFORM_URL.format(run=review.run, digest=file["file"]),
        "scene_starts": estimate_scene_starts(script) if script else [],
        "lines": [line.model_dump() for line in lines],
        "shown_clips": shown,
        "film_checks": list(check_film(context, film, narration, broll, script, shown)),
        "is_partly_offline": bool(services.offline_services),
        "spent": await context.client.costs.get_totals(by=(), run=review.run),
        "budget": run.input.get("budget"),
    }


def _list_voices(services: Services, run: Run) -> list[str]:
    """List the known voices that have a key in the run's channel and speak its language."""
    return [name for name in KNOWN_VOICES if can_speak(name, run.input["language"], services.voices)]


def _load(kind: Any, value: Any) -> Any:
    return None if value is None else kind.model_validate(value)


def list_shown_clips(clips: Sequence[Clip], lines: Sequence[Line]) -> list[ShownClip]:
    ends = list(accumulate(clip.seconds for clip in clips))
    starts = [0.0, *ends[:-1]]
    return [ShownClip(start, end, _spoken_between(lines, start, end)) for start, end in zip(starts, ends, strict=True)]


def _spoken_between(lines: Sequence[Line], start: float, end: float) -> str:
    """Return the lines of which the larger part is spoken in this time; at least the one that is spoken most in it."""
    overlaps = [(min(line.end, end) - max(line.start, start), line) for line in lines]
    heard = [line for overlap, line in overlaps if overlap > 0 and overlap * 2 >= line.end - line.start]
    longest = max(overlaps, key=lambda each: each[0], default=(0.0, None))
    if not heard and longest[1] is not None and longest[0] > 0:
        heard = [longest[1]]
    return " ".join(line.text for line in heard)


def estimate_scene_starts(script: Script) -> list[float]:
    """Return when each scene starts, in seconds, if it is spoken at the usual speed."""
    lengths = [seconds_for_words(word_count(scene.text)) for scene in script.scenes]
    return [0.0, *accumulate(lengths[:-1])] if lengths else []


def check_film(
    context: PageContext,
    film: Assembly | None,
    narration: Narration | None,
    broll: Broll | None,
    script: Script | None,
    shown: Sequence[ShownClip],
) -> Iterator[FilmCheck]:
    formats, gettext = context.formats, context.gettext
    if film and narration:
        difference = abs(film.seconds - narration.seconds)
        yield FilmCheck(
            difference <= MAX_LENGTH_DIFFERENCE,
            gettext(
                "The film and its narration differ by %(seconds)s s in length", seconds=formats.decimal(difference, 2)
            ),
        )
    if broll:
        covered = formats.percent(broll.coverage / 100)
        yield FilmCheck(
            broll.coverage >= MIN_COVERAGE, gettext("Footage covers %(share)s of the narration", share=covered)
        )
    long = [clip for clip in shown if clip.end - clip.start > LONGEST_SHOT_SECONDS]
    if shown:
        longest = max(shown, key=lambda clip: clip.end - clip.start)
        seconds = formats.duration(longest.end - longest.start)
        yield FilmCheck(
            not long, gettext("The longest clip is shown for %(time)s", time=seconds), longest.start if long else None
        )
    if script:
        length = len(script.title)
        yield FilmCheck(
            length <= TITLE_ON_PHONES,
            gettext(
                "The title has %(count)s characters; phones show the first %(most)s",
                count=formats.number(length),
                most=TITLE_ON_PHONES,
            ),
        )
