"""Thumbnails: a picture with a few words on it, each paid for once."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from typing import Any

from retoma import Context
from retoma_apps.videos.media.thumbnails import LAYOUTS, PALETTES, SIZE, thumbnail
from retoma_apps.videos.media.workroom import workroom
from retoma_apps.videos.models import Language, Script, Thumbnail, Thumbnails
from retoma_apps.videos.studio import Studio
from retoma_apps.videos.wishes import former_of, wishes_with
from retoma_apps.videos.writing.headlines import thumbnail_texts


async def pictured(topic: str, language: Language, script: Script, studio: Studio, ctx: Context) -> Thumbnails:
    """Made anew, they keep the words that a reviewer gave them, and what was wished for."""
    former = former_of(Thumbnails, topic, language, ctx) or Thumbnails(variants=[])
    asked = ctx.feedback.extra.get("thumbnail_texts", []) if ctx.feedback else []
    texts = [*asked, *former.texts[len(asked) :]]
    wishes = wishes_with(former.wishes, ctx)
    written = [*texts, *thumbnail_texts(script)[len(texts) :]]
    variants = [await _variant(number, text, script, wishes, studio, ctx) for number, text in enumerate(written, 1)]
    return Thumbnails(topic=topic, language=language, wishes=wishes, variants=variants, texts=texts)


async def _variant(
    number: int, text: str, script: Script, wishes: Sequence[str], studio: Studio, ctx: Context
) -> Thumbnail:
    async def draw() -> dict[str, Any]:
        background = await studio.images.make(_prompt(number, script, wishes), width=SIZE[0], height=SIZE[1])
        ctx.charge(studio.images.name, studio.images.model, units=1)
        with workroom("thumbnail") as folder:
            picture = folder / f"variant_{number}.png"
            await asyncio.to_thread(thumbnail, background, text, picture, PALETTES[number - 1], LAYOUTS[number - 1])
            return Thumbnail(image=await ctx.save_file(picture, picture.name), text=text).model_dump(mode="json")

    return Thumbnail.model_validate(await ctx.once(f"thumbnail {number}", draw))


def _prompt(number: int, script: Script, wishes: Sequence[str]) -> str:
    """The last wish first: a service may cut what is too long for it."""
    return " ".join([f"#{number} {script.title}. {script.scenes[0].visual}.", *reversed(wishes)])
