"""The eight types of jobs of a story, each in a queue of its own, and the review before the upload."""

from __future__ import annotations

from typing import Any

from retoma import Context, Items, Pipeline, Pool, Retry, all_finished, exponential, hours, minutes
from retoma_apps.media.models import Language
from retoma_apps.media.review_times import REVIEW_TIMES
from retoma_apps.providers import estimates
from retoma_apps.providers.images import Images
from retoma_apps.stories.models import (
    Approval,
    Brief,
    Film,
    Languages,
    Metadata,
    Scene,
    SceneAudio,
    SceneClip,
    SceneImage,
    Scenes,
    SceneTranslation,
    Thumbnails,
    Upload,
)
from retoma_apps.stories.services import Services
from retoma_apps.stories.steps import film, publishing
from retoma_apps.stories.steps import scenes as scene_parts
from retoma_apps.stories.steps.feedback_checks import refuse_feedback
from retoma_apps.stories.steps.prices import PRICES
from retoma_apps.stories.steps.writing.port import StoryWriter

# Shared by all channels, which take turns. Each limits how much its provider is asked at once.
WRITER = Pool("stories-writer", capacity=16)
IMAGES = Pool("stories-images", capacity=32)
VOICES = Pool("stories-voices", capacity=32)
FILMS = Pool("stories-films", capacity=4)

SCENE_STEPS = ("generate_image", "generate_audio", "translate_scene")
"""The steps that `render_video` waits for."""

# Internal steps, such as the list of scenes and languages, are in the queue of scripts.
story = Pipeline("story", Brief, title="{topic}", queue="generate_script", retry=Retry(3, backoff=exponential(5)))


@story.step(queue="generate_script", pool=WRITER, timeout=minutes(10), estimated_cost=estimates.ANSWER)
async def generate_script(
    topic: str,
    scenes: int,
    language: Language,
    style: str,
    *,
    writer: StoryWriter,
    ctx: Context,
) -> Scenes:
    brief = Brief(topic=topic, scenes=scenes, language=language, style=style)
    return await scene_parts.write_script(brief, writer, ctx)


# A failed scene does not stop the others. `render_video` fails when all have ended, and the scene can be rerun alone.
@story.each(
    generate_script,
    key="id",
    queue="generate_image",
    pool=IMAGES,
    timeout=minutes(10),
    on_failure="continue",
    estimated_cost=PRICES["generate_image"],
)
async def generate_image(scene: Scene, style: str, *, images: Images, services: Services, ctx: Context) -> SceneImage:
    return await scene_parts.draw_scene(scene, style, images, services, ctx)


@story.each(
    generate_script,
    queue="generate_audio",
    pool=VOICES,
    timeout=minutes(10),
    on_failure="continue",
    estimated_cost=PRICES["generate_audio"],
)
async def generate_audio(
    scene: Scene, voice: str, language: Language, *, services: Services, ctx: Context
) -> SceneAudio:
    return await scene_parts.speak_scene(scene, voice, language, services, ctx)


@story.each(
    generate_script,
    "languages",
    key=["id", None],
    queue="translate_scene",
    pool=WRITER,
    timeout=minutes(10),
    on_failure="continue",
    estimated_cost=estimates.SHORT_ANSWER,
)
async def translate_scene(
    scene: Scene, target: str, topic: str, language: Language, *, writer: StoryWriter, ctx: Context
) -> SceneTranslation:
    return await scene_parts.translate(Brief(topic=topic, language=language), scene, target, writer, ctx)


@story.each(generate_script, queue="render_video", pool=FILMS, timeout=minutes(30), on_failure="continue")
async def render_scene(
    scene: Scene, generate_image: SceneImage, generate_audio: SceneAudio, *, services: Services, ctx: Context
) -> SceneClip:
    """Render the moving picture of a scene: a part of `render_video` that is done for all scenes side by side."""
    return await scene_parts.render_clip(scene, generate_image, generate_audio, services, ctx)


@story.step(
    queue="render_video",
    pool=FILMS,
    timeout=hours(1),
    proceed_when=all_finished(allow_failed=0),
    feedback=refuse_feedback,
)
async def render_video(
    language: Language,
    generate_image: Items[SceneImage],
    generate_audio: Items[SceneAudio],
    translate_scene: Items[SceneTranslation],
    render_scene: Items[SceneClip],
    *,
    services: Services,
    ctx: Context,
) -> Film:
    return await film.assemble_film(
        render_scene, generate_audio, translate_scene, language=language, services=services, ctx=ctx
    )


@story.step(queue="generate_thumbnails", after=render_video, timeout=minutes(10), feedback=refuse_feedback)
async def generate_thumbnails(
    topic: str, generate_script: Scenes, generate_image: Items[SceneImage], *, ctx: Context
) -> Thumbnails:
    return await film.draw_thumbnails(topic, generate_script, generate_image, ctx)


@story.step(
    queue="generate_metadata",
    after=render_video,
    pool=WRITER,
    timeout=minutes(10),
    feedback=refuse_feedback,
    estimated_cost=estimates.ANSWER,
)
async def generate_metadata(
    topic: str,
    language: Language,
    languages: Languages,
    generate_script: Scenes,
    *,
    writer: StoryWriter,
    ctx: Context,
) -> Metadata:
    brief = Brief(topic=topic, language=language, languages=languages)
    charge = scene_parts.charge_usage(writer, ctx)

    async def write() -> dict[str, Any]:
        return (await writer.metadata(brief, generate_script, on_usage=charge)).model_dump()

    return Metadata.model_validate(await ctx.once("metadata", write))


# No step before it follows notes: people rerun single scenes on the story's page instead.
story.review(
    "approval",
    of=[render_video, generate_thumbnails, generate_metadata],
    form=Approval,
    send_back_to=None,
    **REVIEW_TIMES,
)


@story.step(queue="upload_youtube", retry=Retry(5, backoff=exponential(60)), timeout=hours(2), publishes=True)
async def upload_youtube(
    language: Language,
    approval: Approval,
    render_video: Film,
    generate_thumbnails: Thumbnails,
    generate_metadata: Metadata,
    *,
    services: Services,
    ctx: Context,
) -> Upload:
    return await publishing.upload_story(
        approval,
        render_video,
        generate_thumbnails,
        generate_metadata,
        language=language,
        services=services,
        ctx=ctx,
    )
