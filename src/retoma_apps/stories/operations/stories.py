"""Order stories, find them, and rerun their scenes."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Literal, get_args
from uuid import UUID

from retoma import Client
from retoma.errors import NotFound
from retoma.records import Job, Revision, Run
from retoma.states import JobState
from retoma_apps.media.channels import get_channel
from retoma_apps.media.models import Channel, Language
from retoma_apps.media.voices import speaks
from retoma_apps.providers.topics import find_topic, find_translation
from retoma_apps.stories.models import Brief, Order
from retoma_apps.stories.pipeline import SCENE_STEPS, story
from retoma_apps.stories.steps.writing.bundled import NeedsLanguageModel
from retoma_apps.stories.steps.writing.port import StoryWriter

ScenePart = Literal["image", "audio", "translations"]
PARTS: tuple[ScenePart, ...] = get_args(ScenePart)
TRANSLATIONS = "translate_scene"
_STEP_BY_PART: dict[ScenePart, str] = {
    "image": "generate_image",
    "audio": "generate_audio",
    "translations": TRANSLATIONS,
}


async def order_story(client: Client, order: Order, writer: StoryWriter, *, key: str | None) -> UUID:
    """Start a story and return its run; the same order under the same key returns the first run.

    Raise Conflict if the key belongs to another order, or NeedsLanguageModel if this writer cannot write or translate
    it.
    """
    brief = create_brief(order, await get_channel(client, order.channel), writer)
    problem = find_problem(brief, writer)
    if problem and not (key and await client.runs.find_by_key(key, story, tenant=order.channel)):
        raise problem
    return (await client.start(story, brief, tenant=order.channel, key=key, request=order)).id


def create_brief(order: Order, channel: Channel, writer: StoryWriter) -> Brief:
    """Return the order, completed with its channel's current settings. A bundled topic that exists only in another
    language than the channel's keeps that language. The language of the narration needs no translation."""
    language: Language = channel.language
    if writer.topics and not find_topic(order.topic, language) and (bundled := find_topic(order.topic)):
        language = "en" if bundled.language == "en" else "pt-BR"
    return Brief(
        topic=order.topic.strip(),
        scenes=order.scenes,
        language=language,
        languages=[each for each in order.languages if each.casefold() != language.casefold()],
        voice=channel.voice if speaks(channel.voice, language) else "",
        style=channel.style,
    )


def find_problem(brief: Brief, writer: StoryWriter) -> NeedsLanguageModel | None:
    """Return why this writer cannot tell the story, or None."""
    if writer.topics is None:
        return None
    topic = find_topic(brief.topic, brief.language)
    if topic is None or topic not in writer.topics:
        return NeedsLanguageModel.for_topic(brief.topic)
    missing = [language for language in brief.languages if find_translation(topic, language) is None]
    return NeedsLanguageModel.for_translation(brief.topic, missing[0]) if missing else None


async def get_story_run(client: Client, run: UUID) -> Run:
    """Return the run of a story. Raise NotFound for a run of another pipeline too."""
    found = await client.runs.get(run)
    if found.pipeline != story.name:
        raise NotFound(f"there is no story {run}")
    return found


async def rerun_scene(
    client: Client, run: Run, scene: str, parts: Sequence[ScenePart] = (), *, by: str, key: str | None = None
) -> Revision:
    """Rerun parts of one scene alone: by default those that failed, or if none did, its picture and its voice.

    The film, its thumbnails and its metadata follow once. Raise NotFound if there is no such scene or part, and RunBusy
    while it is in progress.
    """
    jobs = [job for job in await client.runs.list_jobs(run.id) if is_part_of(job, scene)]
    if not jobs:
        raise NotFound(f"story {run.id} has no scene {scene!r}")
    failed = [job for job in jobs if job.state in (JobState.FAILED, JobState.QUARANTINED)]
    default = failed or [job for job in jobs if job.step != TRANSLATIONS]
    chosen = [job for job in jobs if job.step in map(_STEP_BY_PART.get, parts)] if parts else default
    if not chosen:
        raise NotFound(f"story {run.id} has no translations")
    steps = dict.fromkeys(job.step for job in chosen)
    return await client.runs.rerun(
        run.id, *steps, items=[job.item for job in chosen], by=by, reason=f"scene {scene}", key=key
    )


def is_part_of(job: Job, scene: str) -> bool:
    """Return whether a job makes a part of this scene: its picture, its voice or a translation."""
    return job.step in SCENE_STEPS and job.item.partition("|")[0] == scene
