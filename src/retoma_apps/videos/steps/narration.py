"""Generate the narration of a script piece by piece; each piece is paid for once."""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import Any

from retoma import Context, File, GiveUp, NeedsReview
from retoma.reviews import Feedback
from retoma_apps.providers.speech import Piece, Speech, Word, split_into_pieces, split_sentences, verify_length
from retoma_apps.videos.models import Language, Narration, Script
from retoma_apps.videos.services import Services
from retoma_apps.videos.steps.media.narration import join
from retoma_apps.videos.steps.media.subtitle_lines import build_subtitle_lines
from retoma_apps.videos.steps.media.temp_dir import temp_dir
from retoma_apps.videos.steps.voices import speaks

LONGEST_PIECE = 2_500
"""Characters: about three minutes, far below the limit of any voice."""
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
    parts = _split_script([scene.text for scene in script.scenes], speech)
    spoken = [
        await _speak_piece(speech, part, own_name, language, rate, number, ctx) for number, part in enumerate(parts)
    ]
    sounds = [await services.files.load(File.model_validate(one["audio"])) for one in spoken]
    with temp_dir("narration") as folder:
        sound = folder / "narration.wav"
        scenes, texts = [part.scene for part in parts], [part.text for part in parts]
        words = [[Word(*word) for word in one["words"]] for one in spoken]
        joined = await join(sounds, sound, scenes=scenes)
        lines = build_subtitle_lines(texts, words, joined, scenes=scenes)
        return Narration(
            audio=await ctx.save_file(sound, "narration.wav"),
            seconds=joined.seconds,
            voice=name,
            ordered_voice=voice,
            rate=rate,
            lines=lines,
            scene_starts=_scene_starts(parts, joined.starts, len(script.scenes)),
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


def _split_script(scenes: Sequence[str], speech: Speech) -> list[Piece]:
    """Return pieces as long as possible; without word timings, one per sentence, so each subtitle starts on time."""
    limit = min(LONGEST_PIECE, speech.max_characters)
    if speech.has_word_times:
        return split_into_pieces(scenes, limit)
    return [
        Piece(number, part.text)
        for number, scene in enumerate(scenes)
        for sentence in split_sentences(scene)
        for part in split_into_pieces([sentence], limit)
    ]


async def _speak_piece(
    speech: Speech, part: Piece, voice: str, language: str, rate: float, number: int, ctx: Context
) -> dict[str, Any]:
    async def say() -> dict[str, Any]:
        spoken = await speech.say(part.text, voice=voice, language=language, rate=rate)
        ctx.charge(speech.name, voice, units=len(part.text))
        verify_length(part.text, spoken.seconds, language, rate)
        audio = await ctx.save_file(spoken.audio, f"piece-{number + 1}.wav")
        return {"audio": audio.model_dump(), "words": [[word.text, word.start, word.end] for word in spoken.words]}

    # The name differs from that of the longer pieces: one of those may be recorded already.
    kind = "piece" if speech.has_word_times else "sentence"
    result: dict[str, Any] = await ctx.once(f"{kind} {number + 1}", say)
    return result


def _scene_starts(parts: Sequence[Piece], starts: Sequence[float], scenes: int) -> list[float]:
    """Return the start of each scene; a scene without speech starts where the next does."""
    first: dict[int, float] = {}
    for part, start in zip(parts, starts, strict=True):
        first.setdefault(part.scene, start)
    found, following = [0.0] * scenes, starts[-1] if starts else 0.0
    for scene in reversed(range(scenes)):
        following = first.get(scene, following)
        found[scene] = following
    return [0.0, *found[1:]]


def rate_of(feedback: Feedback | None, current: float) -> float:
    """Return the form's value, else the current rate, one step faster or slower if the notes say so."""
    if feedback is None:
        return current
    if "rate" in feedback.extra:
        return float(feedback.extra["rate"])
    step = _RATE_STEP * bool(_FASTER.search(feedback.text)) - _RATE_STEP * bool(_SLOWER.search(feedback.text))
    return round(min(max(current + step, _MIN_RATE), _MAX_RATE), 2)
