"""`python espeak_main.py VOICE WORDS_PER_MINUTE FFMPEG < text > pcm`: run eSpeak NG as a separate program.

eSpeak is GPL and reads untrusted text, so it is loaded here and never into the calling process. Nothing of Retoma is
imported. FFMPEG is the path of that program, which resamples the sound to 24 kHz; it is 16-bit mono. Standard error
ends with one line of JSON: [character, seconds] for each word that begins, both counted from 0. Exit codes: 3 not
installed, 4 no such voice.
"""

from __future__ import annotations

import ctypes
import json
import resource
import subprocess
import sys
from typing import Any

HERTZ = 24_000
NOT_INSTALLED, NO_SUCH_VOICE, FAILED = 3, 4, 5
_MEMORY = 2 * 1024**3
_CPU_SECONDS = 300

# From eSpeak's speak_lib.h.
_SYNCHRONOUS = 2
_DO_NOT_EXIT = 0x8000
_RATE = 1
_BY_CHARACTER = 1
_UTF8 = 1
_LAST_EVENT, _WORD_EVENT = 0, 1


class _Event(ctypes.Structure):
    _fields_ = (
        ("type", ctypes.c_int),
        ("message", ctypes.c_uint),
        ("text_position", ctypes.c_int),
        ("length", ctypes.c_int),
        ("milliseconds", ctypes.c_int),
        ("sample", ctypes.c_int),
        ("user_data", ctypes.c_void_p),
        ("id", ctypes.c_char * 8),
    )


_Callback = ctypes.CFUNCTYPE(ctypes.c_int, ctypes.c_void_p, ctypes.c_int, ctypes.POINTER(_Event))


def main() -> int:
    _limit()
    try:
        import espeakng_loader  # type: ignore[import-untyped]
    except ImportError as error:
        print(error, file=sys.stderr)
        return NOT_INSTALLED
    library = ctypes.CDLL(espeakng_loader.get_library_path())
    hertz = library.espeak_Initialize(_SYNCHRONOUS, 0, espeakng_loader.get_data_path().encode(), _DO_NOT_EXIT)
    if hertz <= 0:
        return FAILED
    if library.espeak_SetVoiceByName(sys.argv[1].encode()):
        return NO_SUCH_VOICE
    library.espeak_SetParameter(_RATE, int(sys.argv[2]), 0)
    pcm, marks = _synthesize(library, sys.stdin.buffer.read())
    sys.stdout.buffer.write(_resample(pcm, hertz))
    print(json.dumps([(position - 1, sample / hertz) for position, sample in marks]), file=sys.stderr)
    return 0


def _limit() -> None:
    resource.setrlimit(resource.RLIMIT_AS, (_MEMORY, _MEMORY))
    resource.setrlimit(resource.RLIMIT_CPU, (_CPU_SECONDS, _CPU_SECONDS))
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))


def _synthesize(library: ctypes.CDLL, text: bytes) -> tuple[bytes, list[tuple[int, int]]]:
    """Return the samples, and for each word that begins its character, counted from 1, and its sample."""
    pcm = bytearray()
    marks: list[tuple[int, int]] = []

    def take(samples: int | None, count: int, events: Any) -> int:
        if samples and count > 0:
            pcm.extend(ctypes.string_at(samples, count * 2))
        at = 0
        while (event := events[at]).type != _LAST_EVENT:
            if event.type == _WORD_EVENT:
                marks.append((event.text_position, event.sample))
            at += 1
        return 0

    callback = _Callback(take)  # keep a reference for as long as eSpeak may call it
    library.espeak_SetSynthCallback(callback)
    library.espeak_Synth(text, ctypes.c_size_t(len(text) + 1), 0, _BY_CHARACTER, 0, _UTF8, None, None)
    library.espeak_Synchronize()
    return bytes(pcm), marks


def _resample(pcm: bytes, hertz: int) -> bytes:
    if not pcm:
        return pcm
    mono = ("-f", "s16le", "-ac", "1")
    before, after = [*mono, "-ar", str(hertz), "-i", "pipe:0"], [*mono, "-ar", str(HERTZ), "pipe:1"]
    command = [sys.argv[3], "-nostdin", "-loglevel", "error", "-threads", "1", *before, *after]
    return subprocess.run(command, input=pcm, stdout=subprocess.PIPE, env={}, check=True).stdout  # noqa: S603


if __name__ == "__main__":
    sys.exit(main())
