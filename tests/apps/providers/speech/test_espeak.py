"""eSpeak as a separate program: it speaks hostile text literally, returns word timings, and exits in time."""

from __future__ import annotations

import asyncio
import subprocess
import sys
import wave
from io import BytesIO
from typing import Any

import pytest

from retoma import GiveUp
from retoma_apps.providers.speech import UnknownVoice, Word, espeak, verify_length
from retoma_apps.providers.speech.errors import SpeechRefused, SpeechUnavailable
from retoma_apps.providers.speech.espeak import Espeak, time_words

TEXT = 'Ação — "é" o que 2.500,75 pessoas & <b>querem</b>, Sr. João! Em 2026 rende.'
IN_PORTUGUESE: dict[str, Any] = {"voice": "pt-br", "language": "pt-BR"}


async def test_portuguese_is_spoken_at_24_khz_with_the_timing_of_every_word() -> None:
    speech = await Espeak().say(TEXT, **IN_PORTUGUESE)
    with wave.open(BytesIO(speech.audio)) as audio:
        assert (audio.getnchannels(), audio.getsampwidth(), audio.getframerate()) == (1, 2, 24_000)
    assert [word.text for word in speech.words] == TEXT.split()
    assert speech.words[0].start == 0
    assert speech.words[-1].end == speech.seconds
    assert all(before.end == after.start for before, after in zip(speech.words, speech.words[1:], strict=False))
    assert all(word.end > word.start for word in speech.words if word.text != "—")
    verify_length(TEXT, speech.seconds, "pt-BR")


async def test_a_higher_rate_speaks_faster() -> None:
    usual, quick = [await Espeak().say(TEXT, rate=rate, **IN_PORTUGUESE) for rate in (1.0, 1.5)]
    assert quick.seconds == pytest.approx(usual.seconds / 1.5, rel=0.1)


async def test_control_characters_are_not_commands_to_espeak() -> None:
    """After ^A eSpeak reads commands: 450S would more than double its speed."""
    plain, hostile = [await Espeak().say(f"{each} {TEXT}", **IN_PORTUGUESE) for each in ("450S", "\x01450S")]
    assert hostile.seconds == plain.seconds


@pytest.mark.parametrize("voice", ["../../etc/passwd", "pt-br\x00", "-h", "", "pt/br"])
async def test_a_voice_that_looks_like_a_path_is_not_requested(voice: str) -> None:
    with pytest.raises(UnknownVoice):
        await Espeak().say(TEXT, voice=voice, language="")


async def test_a_voice_that_espeak_lacks_is_rejected() -> None:
    with pytest.raises(SpeechRefused, match="pt-br") as raised:
        await Espeak().say(TEXT, voice="xx-nowhere", language="")
    assert raised.value.code == "SPEECH_NO_SUCH_VOICE"


async def test_the_error_names_the_extra_if_espeak_is_not_installed(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(espeak, "_FLAGS", ("-I", "-S"))  # -S: without installed packages
    with pytest.raises(GiveUp, match="media") as raised:
        await Espeak().say(TEXT, **IN_PORTUGUESE)
    assert raised.value.code == "NOT_INSTALLED"


async def test_espeak_is_killed_at_its_timeout(monkeypatch: pytest.MonkeyPatch) -> None:
    started: list[asyncio.subprocess.Process] = []
    start = espeak._start

    async def noted(arguments: Any) -> asyncio.subprocess.Process:
        started.append(await start(arguments))
        return started[0]

    monkeypatch.setattr(espeak, "_start", noted)
    with pytest.raises(SpeechUnavailable) as raised:
        await Espeak(timeout_seconds=0).say(TEXT, **IN_PORTUGUESE)
    assert (raised.value.code, started[0].returncode) == ("SPEECH_TIMEOUT", -9)


async def test_a_crash_is_retryable(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(espeak, "_FLAGS", ("-c", "import os; os.abort()"))
    with pytest.raises(SpeechUnavailable, match="-6"):
        await Espeak().say(TEXT, **IN_PORTUGUESE)


def test_espeak_is_never_loaded_into_the_calling_process() -> None:
    probe = "import sys, retoma_apps.providers.speech; print(sorted({'espeakng_loader', 'av'} & sys.modules.keys()))"
    output = subprocess.run([sys.executable, "-c", probe], capture_output=True, text=True, check=True)
    assert output.stdout == "[]\n"


def test_a_word_without_a_mark_has_no_duration() -> None:
    words = time_words("a — b", [(0, 0.0), (4, 1.5)], 2.0)
    assert words == (Word("a", 0.0, 1.5), Word("—", 1.5, 1.5), Word("b", 1.5, 2.0))
