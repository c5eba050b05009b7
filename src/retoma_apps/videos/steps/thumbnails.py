"""Generate thumbnails: a picture with a few words on it, each paid for once."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from typing import Any

from retoma import Context
from retoma_apps.media.headlines import thumbnail_texts
from retoma_apps.media.models import MOST_THUMBNAILS, Language
from retoma_apps.media.temp_dir import temp_dir
from retoma_apps.media.thumbnails import LAYOUTS, PALETTES, SIZE, draw_thumbnail
from retoma_apps.providers.images import Images
from retoma_apps.videos.models import Script, Thumbnail, Thumbnails
from retoma_apps.videos.steps.feedback_history import append_feedback, find_previous_result


async def generate_thumbnails(
    topic: str, language: Language, script: Script, images: Images, ctx: Context
) -> Thumbnails:
    """Generate thumbnails. A rerun keeps the reviewers' words and feedback."""
    previous = find_previous_result(Thumbnails, topic, language, ctx) or Thumbnails(variants=[])
    requested = ctx.feedback.extra.get("thumbnail_texts", []) if ctx.feedback else []
    texts = [*requested, *previous.texts[len(requested) :]]
    feedback = append_feedback(previous.feedback_history, ctx)
    written = [*texts, *thumbnail_texts(script.title, script.text)[len(texts) :]]
    variants = [
        await _generate_variant(number, text, script, feedback, images, ctx) for number, text in enumerate(written, 1)
    ]
    return Thumbnails(topic=topic, language=language, feedback_history=feedback, variants=variants, texts=texts)


async def _generate_variant(
    number: int, text: str, script: Script, feedback_history: Sequence[str], images: Images, ctx: Context
) -> Thumbnail:
    async def draw() -> dict[str, Any]:
        background = await images.make(_prompt(number, script, feedback_history), width=SIZE[0], height=SIZE[1])
        ctx.charge(images.name, images.model, units=1)
        with temp_dir("thumbnail") as folder:
            picture = folder / f"variant_{number}.png"
            await asyncio.to_thread(
                draw_thumbnail, background, text, picture, PALETTES[number - 1], LAYOUTS[number - 1]
            )
            return Thumbnail(image=await ctx.save_file(picture, picture.name), text=text).model_dump(mode="json")

    return Thumbnail.model_validate(await ctx.once(f"thumbnail {number}", draw))


def _prompt(number: int, script: Script, feedback_history: Sequence[str]) -> str:
    """Put the latest feedback first: a service may cut a long prompt."""
    scene = script.scenes[(number - 1) * len(script.scenes) // MOST_THUMBNAILS]
    version = [f"Version {len(feedback_history) + 1}."] if feedback_history else []
    return " ".join([f"#{number} {script.title}. {scene.visual}.", *version, *reversed(feedback_history)])
