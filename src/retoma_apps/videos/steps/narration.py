"""Generate the narration of a script piece by piece; each piece is paid for once."""

from __future__ import annotations

import re

from retoma import Context, GiveUp, NeedsReview
from retoma.reviews import Feedback
from retoma_apps.media.models import Language
from retoma_apps.media.speaking import Voice, speak_scenes
from retoma_apps.media.voices import speaks
from retoma_apps.providers.pictures import LAST_PAUSE_SECONDS
from retoma_apps.providers.speech import Speech
from retoma_apps.videos.models import Narration, Script
from retoma_apps.videos.services import Services

_MIN_RATE, _MAX_RATE = 0.6, 1.6
_RATE_STEP = 0.1
_VOICE_UNAVAILABLE = (
    "the requested voice {voice!r} has no key or does not speak the video's language: approve to review the previous "
    "narration again, or send this back to narrate as before"
)
_FASTER = re.compile(r"mais r[áa]pid|\bacele\w+|faster|quicker", re.IGNORECASE)
_SLOWER = re.compile(r"mais (lent|devagar)|\bdesacele\w+|slower", re.IGNORECASE)


async def generate_narration(
    script: Script, voice: str, language: Language, services: Services, ctx: Context
) -> Narration:
    """Generate the narration. A rerun keeps its voice and speed unless a reviewer or a fork requests others."""
    previous = _find_previous_narration(voice, language, ctx)
    current = previous.voice if previous else voice
    wanted = ctx.feedback.extra.get("voice", current) if ctx.feedback else current
    rate = rate_of(ctx.feedback, previous.rate if previous else 1.0)
    speech, own_name, name = _choose_speaker(wanted, current, language, services, ctx)
    spoken = await speak_scenes(
        [scene.text for scene in script.scenes],
        Voice(speech, own_name, language, rate),
        services.files,
        ctx,
        ending=LAST_PAUSE_SECONDS,
    )
    return Narration(
        audio=spoken.audio,
        seconds=spoken.seconds,
        voice=name,
        ordered_voice=voice,
        rate=rate,
        lines=spoken.lines,
        scene_starts=spoken.scene_starts,
    )


def _choose_speaker(
    wanted: str, current: str, language: Language, services: Services, ctx: Context
) -> tuple[Speech, str, str]:
    """Choose the voice. No other voice replaces an unavailable one: if a reviewer requested it, ask a person."""
    try:
        return services.find_voice(wanted, language)
    except GiveUp as refusal:
        if wanted == current:
            raise
        previous = Narration.model_validate(ctx.previous_result)
        raise NeedsReview(_VOICE_UNAVAILABLE.format(voice=wanted), value=previous, code="NO_VOICE") from refusal


def _find_previous_narration(voice: str, language: Language, ctx: Context) -> Narration | None:
    """Return the previous narration of the same order: that of a forked video may be for another."""
    previous = Narration.model_validate(ctx.previous_result) if ctx.previous_result else None
    return previous if previous and previous.ordered_voice == voice and speaks(previous.voice, language) else None


def rate_of(feedback: Feedback | None, current: float) -> float:
    """Return the form's value, else the current rate, one step faster or slower if the notes say so."""
    if feedback is None:
        return current
    if "rate" in feedback.extra:
        return float(feedback.extra["rate"])
    step = _RATE_STEP * bool(_FASTER.search(feedback.text)) - _RATE_STEP * bool(_SLOWER.search(feedback.text))
    return round(min(max(current + step, _MIN_RATE), _MAX_RATE), 2)
