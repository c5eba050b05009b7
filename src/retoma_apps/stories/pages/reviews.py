"""What reviewers of a story see besides film, thumbnails and texts: the spoken lines, and what changed by scene."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import Any

from retoma.records import Review, Run
from retoma.server import PageContext
from retoma.states import JobState
from retoma_apps.media.models import Line
from retoma_apps.stories.models import Film, Metadata, Scene, SceneAudio
from retoma_apps.stories.operations.overview import REVIEW, get_overview
from retoma_apps.stories.pages import messages
from retoma_apps.stories.pages.common import HOME, StoryPages

WAVEFORM_URL = f"{HOME}waveforms/{{run}}/{{digest}}"
REVIEW_TEMPLATES = {REVIEW: "story_review.html"}
REVIEW_ASIDES = {REVIEW: "story_review_aside.html"}
TITLE_ON_PHONES = 60  # characters of a title that a phone shows
LONGEST_SCENE_SECONDS = 30


@dataclass(frozen=True)
class FilmCheck:
    """A finding about a film, as a sentence. `at` is where to look, in seconds."""

    is_met: bool
    text: str
    at: float | None = None


@dataclass(frozen=True)
class SceneChange:
    """A scene that differs from its previous version. `before` is its earlier text, if that was another.

    `images` are those before and now, if they differ; `parts` names the steps whose results differ.
    """

    scene: Scene
    at: float
    before: str | None
    images: tuple[Any, Any] | None
    parts: list[str]


async def get_review_values(context: PageContext, review: Review) -> Mapping[str, Any]:
    run = await context.client.runs.get(review.run)
    results = await context.client.runs.get_results(run.id, revision=review.revision)
    film = Film.model_validate(results["render_video"])
    scenes = [Scene.model_validate(each) for each in results["generate_script"]]
    former = await _get_previous_results(context, run, review.revision)
    services = await StoryPages().get_services(context, run.tenant)
    return {
        "peaks_url": lambda file: WAVEFORM_URL.format(run=run.id, digest=file["file"]),
        "lines": list_lines(scenes, film, results["generate_audio"]),
        "scenes": scenes,
        "scene_changes": None if former is None else list(list_scene_changes(scenes, film, results, former)),
        "film_checks": list(check_film(context, film, Metadata.model_validate(results["generate_metadata"]), run)),
        "upload": (await get_overview(context.client, run)).upload,
        "may_rerun": run.state.can_run and context.may("runs:write", run.tenant),
        "part_name": lambda step: context.translate(messages.PART_NAMES[step]),
        "is_partly_offline": bool(services.offline_services),
        "spent": await context.client.costs.get_totals(by=(), run=run.id),
    }


async def _get_previous_results(context: PageContext, run: Run, revision: int) -> Mapping[str, Any] | None:
    """Return all results at the last revision that had a film before this one, None if there is none."""
    history = await context.client.runs.get_step_history(run.id, "render_video")
    earlier = (each for each in history if each.revision < revision and each.state is JobState.SUCCEEDED)
    since = next(earlier, None)
    return None if since is None else await context.client.runs.get_results(run.id, revision=since.revision)


def list_lines(scenes: Sequence[Scene], film: Film, voices: Mapping[str, Any]) -> list[Line]:
    """Return what is spoken, with times of the film."""
    return [
        Line(text=line.text, start=line.start + start, end=line.end + start)
        for scene, start in zip(scenes, film.starts, strict=False)
        if scene.id in voices
        for line in SceneAudio.model_validate(voices[scene.id]).lines
    ]


def list_scene_changes(
    scenes: Sequence[Scene], film: Film, now: Mapping[str, Any], former: Mapping[str, Any]
) -> Iterator[SceneChange]:
    texts = {each["id"]: each["text"] for each in former["generate_script"]}
    for scene, start in zip(scenes, film.starts, strict=False):
        images = tuple((results["generate_image"].get(scene.id) or {}).get("image") for results in (former, now))
        parts = [
            step for step in messages.PART_NAMES if _find_parts(step, scene, now) != _find_parts(step, scene, former)
        ]
        before = texts.get(scene.id, "")
        if parts or before != scene.text:
            yield SceneChange(
                scene,
                start,
                before if before != scene.text else None,
                (images[0], images[1]) if "generate_image" in parts else None,
                parts,
            )


def _find_parts(step: str, scene: Scene, results: Mapping[str, Any]) -> dict[str, Any]:
    """Return the results of a step for this scene, by item: one for each language of a translation."""
    return {item: value for item, value in (results.get(step) or {}).items() if item.partition("|")[0] == scene.id}


def check_film(context: PageContext, film: Film, texts: Metadata, run: Run) -> Iterator[FilmCheck]:
    formats, gettext = context.formats, context.gettext
    wanted = {run.input["language"], *run.input["languages"]}
    missing = wanted - {track.language for track in film.tracks}
    yield FilmCheck(
        not missing,
        gettext("Subtitles are missing in: %(languages)s", languages=", ".join(sorted(missing)))
        if missing
        else gettext("Subtitles in all languages: %(languages)s", languages=", ".join(sorted(wanted))),
    )
    length, start = max((end - start, start) for start, end in pairwise([*film.starts, film.seconds]))
    is_short = length <= LONGEST_SCENE_SECONDS
    yield FilmCheck(
        is_short,
        gettext("The longest scene lasts %(time)s", time=formats.duration(length)),
        None if is_short else start,
    )
    yield FilmCheck(
        len(texts.title) <= TITLE_ON_PHONES,
        gettext(
            "The title has %(count)s characters; phones show the first %(most)s",
            count=formats.number(len(texts.title)),
            most=TITLE_ON_PHONES,
        ),
    )
