"""Generate the images of an article, each paid for once per revision."""

from __future__ import annotations

import json
from hashlib import sha256
from typing import Any
from uuid import UUID

from retoma import Context
from retoma_apps.autowriter.models import FEATURED, Image, ImagePrompt
from retoma_apps.providers.images import Images

FEATURED_SIZE, INLINE_SIZE = (1200, 630), (1024, 768)
_MAX_NOTES = 500


def make_image_key(job: UUID, image_type: str, prompt: str, revision: int) -> str:
    """Return `image_idempotency_key`. With another revision it is another image, even of the same prompt."""
    prompt_hash = sha256(prompt.encode()).hexdigest()
    parts = {"job_id": str(job), "image_type": image_type, "prompt_hash": prompt_hash, "revision": revision}
    return sha256(json.dumps(parts, sort_keys=True, separators=(",", ":")).encode()).hexdigest()


async def generate_image(wanted: ImagePrompt, images: Images, ctx: Context) -> Image:
    key = make_image_key(ctx.run, wanted.type, wanted.prompt, ctx.revision)
    width, height = FEATURED_SIZE if wanted.type == FEATURED else INLINE_SIZE

    async def generate() -> dict[str, Any]:
        picture = await images.make(_build_prompt(wanted, images, ctx), width=width, height=height)
        ctx.charge(images.name, images.model, units=1, micros=0 if images.is_offline else None)
        file = await ctx.save_file(picture, f"{wanted.type}.jpg")
        # A later attempt may have another provider.
        return Image(key=key, type=wanted.type, alt=wanted.alt, file=file, provider=images.name).model_dump(mode="json")

    return Image.model_validate(await ctx.once("image", generate, key=key))


def _build_prompt(wanted: ImagePrompt, images: Images, ctx: Context) -> str:
    notes = ctx.feedback.text[:_MAX_NOTES] if ctx.feedback else ""
    # A provider that only draws shapes would draw the same ones again.
    variant = "" if images.follows_notes or ctx.revision == 1 else f"#{ctx.revision}"
    return " ".join(filter(None, [wanted.prompt, notes, variant]))
