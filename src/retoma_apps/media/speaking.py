"""Speak scenes piece by piece; each piece is paid for once."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from retoma import Context, File
from retoma.files import FileStore
from retoma_apps.media.models import Line
from retoma_apps.media.narration import join
from retoma_apps.media.subtitle_lines import build_subtitle_lines
from retoma_apps.media.temp_dir import temp_dir
from retoma_apps.providers.speech import Piece, Speech, Word, split_into_pieces, split_sentences, verify_length

LONGEST_PIECE = 2_500
"""Characters: about three minutes, far below the limit of any voice."""


@dataclass(frozen=True)
class Voice:
    """A voice by its name at the provider. A `rate` of 1 is its normal speed."""

    speech: Speech
    name: str
    language: str
    rate: float = 1.0


@dataclass(frozen=True)
class Spoken:
    """`scene_starts` has the start of each scene in seconds."""

    audio: File
    seconds: float
    lines: list[Line]
    scene_starts: list[float]


async def speak_scenes(
    scenes: Sequence[str], voice: Voice, files: FileStore, ctx: Context, *, ending: float = 0.0
) -> Spoken:
    """Speak these texts as one recording, with its subtitles and `ending` seconds of silence after them."""
    parts = _split_script(scenes, voice.speech)
    spoken = [await _speak_piece(voice, part, number, ctx) for number, part in enumerate(parts)]
    sounds = [await files.load(File.model_validate(one["audio"])) for one in spoken]
    with temp_dir("narration") as folder:
        sound = folder / "narration.wav"
        numbers, texts = [part.scene for part in parts], [part.text for part in parts]
        words = [[Word(*word) for word in one["words"]] for one in spoken]
        joined = await join(sounds, sound, scenes=numbers, ending=ending)
        return Spoken(
            audio=await ctx.save_file(sound, "narration.wav"),
            seconds=joined.seconds,
            lines=build_subtitle_lines(texts, words, joined, scenes=numbers),
            scene_starts=_scene_starts(parts, joined.starts, len(scenes)),
        )


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


async def _speak_piece(voice: Voice, part: Piece, number: int, ctx: Context) -> dict[str, Any]:
    speech = voice.speech

    async def say() -> dict[str, Any]:
        spoken = await speech.say(part.text, voice=voice.name, language=voice.language, rate=voice.rate)
        ctx.charge(speech.name, voice.name, units=len(part.text))
        verify_length(part.text, spoken.seconds, voice.language, voice.rate)
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
