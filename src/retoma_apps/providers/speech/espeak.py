"""The offline implementation: eSpeak NG in a separate process on this machine. Robotic, instant and free."""

from __future__ import annotations

import asyncio
import json
import re
import sys
from collections.abc import Mapping, Sequence
from itertools import pairwise
from pathlib import Path

from retoma import GiveUp
from retoma.privileges import drop_privileges
from retoma_apps.providers import ffmpeg
from retoma_apps.providers.processes import kill_process
from retoma_apps.providers.provider import OfflineProvider
from retoma_apps.providers.speech import espeak_main
from retoma_apps.providers.speech.errors import InvalidAudio, SpeechRefused, SpeechUnavailable, UnknownVoice
from retoma_apps.providers.speech.port import SpokenAudio, Word
from retoma_apps.providers.speech.texts import clean_speech_text
from retoma_apps.providers.speech.voices import Speaker
from retoma_apps.providers.speech.wav import seconds_of, to_spoken_audio

WORDS_PER_MINUTE = 185
"""As eSpeak counts, without pauses: about 145 in a narration."""
_SLOWEST, _QUICKEST = 80, 450
_PROGRAM = Path(espeak_main.__file__)
# -I: neither the environment nor the folder can change what the program imports.
_FLAGS = ("-I",)
# eSpeak treats a voice name that looks like a path as one.
_VOICE = re.compile(r"[A-Za-z][A-Za-z0-9-]{0,40}(\+[A-Za-z0-9]{1,40})?")
_PUBLIC_NAME = re.compile(r"espeak_([a-z]{2,3}(?:_[a-z0-9]{2,20}){0,3})")


class Espeak(OfflineProvider):
    """`language` is ignored: an eSpeak voice implies its language, such as pt-br."""

    name = "espeak"
    max_characters = 5_000
    has_word_times = True
    voices: Mapping[str, Speaker] = {
        "espeak_pt_br": Speaker("espeak", "pt-br", "pt-BR"),
        "espeak_en": Speaker("espeak", "en-us", "en-US"),
    }
    voice_form = "espeak_<voice>"

    def __init__(self, timeout_seconds: float = 60.0) -> None:
        self._timeout = timeout_seconds

    @staticmethod
    def parse_voice(name: str) -> Speaker | None:
        if (found := _PUBLIC_NAME.fullmatch(name)) is None:
            return None
        voice = found[1].replace("_", "-")
        return Speaker("espeak", voice, voice)

    async def say(self, text: str, *, voice: str, language: str, rate: float = 1.0) -> SpokenAudio:
        text = clean_speech_text(text, self.max_characters)
        if not _VOICE.fullmatch(voice):
            raise UnknownVoice(f"{voice[:60]!r} is not the name of an eSpeak voice; examples are pt-br and en-us")
        pace = min(max(round(WORDS_PER_MINUTE * rate), _SLOWEST), _QUICKEST)
        pcm, log = await self._run(text, voice, str(pace), ffmpeg.find_ffmpeg())
        return to_spoken_audio(pcm, time_words(text, _parse_marks(log), seconds_of(pcm)))

    async def _run(self, text: str, *arguments: str) -> tuple[bytes, str]:
        process = await _start(arguments)
        try:
            async with asyncio.timeout(self._timeout):
                audio, errors = await process.communicate(text.encode())
        except TimeoutError as error:
            raise SpeechUnavailable(f"eSpeak did not finish within {self._timeout:g} s", "SPEECH_TIMEOUT") from error
        finally:
            await kill_process(process)
        log = errors.decode(errors="replace")
        _check_exit(process.returncode, arguments[0], log)
        return audio, log


def time_words(text: str, marks: Sequence[tuple[int, float]], seconds: float) -> tuple[Word, ...]:
    """Return every word of the text with its times. A mark is the position of a character and when it is spoken; a word
    ends where the next begins. Text that is not spoken, such as a lone dash, takes no time."""
    found = list(re.finditer(r"\S+", text))
    starts = [seconds]
    for word in reversed(found):
        own = [when for at, when in marks if word.start() <= at < word.end()]
        starts.append(min([*own, starts[-1]]))
    times = pairwise(reversed(starts))
    return tuple(Word(word.group(), start, end) for word, (start, end) in zip(found, times, strict=True))


async def _start(arguments: Sequence[str]) -> asyncio.subprocess.Process:
    return await asyncio.create_subprocess_exec(
        sys.executable,
        *_FLAGS,
        str(_PROGRAM),
        *arguments,
        cwd="/",
        env={},
        stdin=asyncio.subprocess.PIPE,
        stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.PIPE,
        preexec_fn=drop_privileges,
    )


def _check_exit(code: int | None, voice: str, log: str) -> None:
    if code == espeak_main.NOT_INSTALLED:
        raise GiveUp(
            "eSpeak is not installed: install the extra `media`, for example pip install -e '.[media]'", "NOT_INSTALLED"
        )
    if code == espeak_main.NO_SUCH_VOICE:
        raise SpeechRefused(f"eSpeak has no voice {voice!r}; examples are pt-br and en-us", "SPEECH_NO_SUCH_VOICE")
    if code:
        last = log.strip().rpartition("\n")[2]
        raise SpeechUnavailable(f"eSpeak exited with {code}: {last[:200] or 'no output'}")


def _parse_marks(log: str) -> list[tuple[int, float]]:
    try:
        return [(int(at), float(when)) for at, when in json.loads(log.strip().rpartition("\n")[2])]
    except (ValueError, TypeError) as error:
        raise InvalidAudio("eSpeak returned no word positions") from error
