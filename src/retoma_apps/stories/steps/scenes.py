"""Generate the parts of one scene: its picture, its voice, its translation and its moving picture. Each is paid for
once."""

from __future__ import annotations

import asyncio
import math
from typing import Any

from retoma import Context, GiveUp
from retoma_apps.media.services import UsageCallback
from retoma_apps.media.speaking import Voice, speak_scenes
from retoma_apps.media.stills import Format, render_drawing, render_still
from retoma_apps.media.temp_dir import temp_dir
from retoma_apps.providers.gpu.zooms import DEFAULT_ZOOMS
from retoma_apps.providers.images import Images
from retoma_apps.providers.llm import Usage
from retoma_apps.providers.pictures import LAST_PAUSE_SECONDS, PAUSE_SECONDS
from retoma_apps.providers.topics import read_drawing
from retoma_apps.stories.models import Brief, Scene, SceneAudio, SceneClip, SceneImage, SceneTranslation
from retoma_apps.stories.services import Services
from retoma_apps.stories.steps.writing.port import StoryWriter


def charge_usage(writer: StoryWriter, ctx: Context) -> UsageCallback:
    def charge(usage: Usage) -> None:
        usage.charge(ctx, writer.provider, writer.name)

    return charge


async def write_script(brief: Brief, writer: StoryWriter, ctx: Context) -> list[Scene]:
    """Return the scenes. Raise GiveUp with NO_SCENES if there are none: there would be nothing to render."""

    async def write() -> list[dict[str, Any]]:
        return [scene.model_dump() for scene in await writer.script(brief, on_usage=charge_usage(writer, ctx))]

    scenes = [Scene.model_validate(each) for each in await ctx.once("script", write)]
    if not scenes:
        raise GiveUp("the script has no scenes: order the story with another topic", "NO_SCENES")
    return scenes


async def draw_scene(scene: Scene, style: str, images: Images, services: Services, ctx: Context) -> SceneImage:
    async def draw() -> dict[str, Any]:
        width, height = services.size
        picture = await images.make(_describe_picture(scene, style, ctx), width=width, height=height)
        ctx.charge(images.name, images.model, units=1)
        return SceneImage(image=await ctx.save_file(picture, f"scene-{scene.id}.jpg")).model_dump(mode="json")

    return SceneImage.model_validate(await ctx.once("image", draw))


def _describe_picture(scene: Scene, style: str, ctx: Context) -> str:
    """Return the prompt. It differs in each revision, so that a rerun draws another picture."""
    variant = f"Version {ctx.revision}." if ctx.revision > 1 else ""
    return " ".join(part for part in (f"{scene.visual}.", style, variant) if part)


async def speak_scene(scene: Scene, voice: str, language: str, services: Services, ctx: Context) -> SceneAudio:
    speech, name, _ = services.find_voice(voice, language)
    spoken = await speak_scenes([scene.text], Voice(speech, name, language), services.files, ctx)
    return SceneAudio(audio=spoken.audio, seconds=spoken.seconds, lines=spoken.lines)


async def translate(brief: Brief, scene: Scene, language: str, writer: StoryWriter, ctx: Context) -> SceneTranslation:
    async def ask() -> str:
        return await writer.translate(brief, scene, language, on_usage=charge_usage(writer, ctx))

    return SceneTranslation(scene=scene.id, language=language, text=await ctx.once("translation", ask))


async def render_clip(
    scene: Scene, picture: SceneImage, voice: SceneAudio, services: Services, ctx: Context
) -> SceneClip:
    """Animate the picture if it is a drawing of a bundled scene, else move slowly over it, for the whole frames that
    the speech and a pause need."""
    drawing = read_drawing(await asyncio.to_thread(ctx.path(picture.image).read_bytes))
    is_last = drawing is not None and drawing.animate(scene.text).is_last
    pause = LAST_PAUSE_SECONDS if is_last else PAUSE_SECONDS
    form = Format(math.ceil((voice.seconds + pause) * services.fps), services.size, services.fps)
    with temp_dir("scene") as folder:
        clip = folder / "clip.mp4"
        if drawing is not None:
            await render_drawing(drawing, scene.text, int(scene.id), clip, form)
        else:
            await render_still(ctx.path(picture.image), clip, DEFAULT_ZOOMS[int(scene.id) % len(DEFAULT_ZOOMS)], form)
        return SceneClip(video=await ctx.save_file(clip, f"scene-{scene.id}.mp4"), seconds=form.frames / form.fps)
