from __future__ import annotations

import pytest

from retoma import GiveUp
from retoma_apps.providers.speech import KNOWN_VOICES, UnknownVoice, default_voice, find_speaker


@pytest.mark.parametrize(
    ("name", "expected"),
    [
        ("azure_pt_br_antonio", ("azure", "pt-BR-AntonioNeural", "pt-BR")),
        ("azure_pt_br_francisca", ("azure", "pt-BR-FranciscaNeural", "pt-BR")),
        ("azure_en_us_guy", ("azure", "en-US-GuyNeural", "en-US")),
        ("azure_pt_pt_raquel", ("azure", "pt-PT-RaquelNeural", "pt-PT")),
        ("elevenlabs_pNInz6obpgDQGcFmaJgB", ("elevenlabs", "pNInz6obpgDQGcFmaJgB", "")),
        ("espeak_pt_br", ("espeak", "pt-br", "pt-BR")),
        ("espeak_en", ("espeak", "en-us", "en-US")),
        ("espeak_es_419", ("espeak", "es-419", "es-419")),
    ],
)
def test_a_voice_name_identifies_its_speaker(name: str, expected: tuple[str, str, str]) -> None:
    assert find_speaker(name) == expected


@pytest.mark.parametrize("name", ["", "antonio", "elevenlabs_../x", "azure_pt_br_<x>", "espeak_../../etc", "polly_x"])
def test_an_unknown_name_is_rejected_and_the_error_lists_the_known_ones(name: str) -> None:
    with pytest.raises(UnknownVoice, match=r"azure_pt_br_antonio.*espeak_pt_br.*elevenlabs_<id>") as raised:
        find_speaker(name)
    assert isinstance(raised.value, GiveUp)
    assert isinstance(raised.value, ValueError)
    assert raised.value.code == "SPEECH_NO_SUCH_VOICE"


@pytest.mark.parametrize(
    ("language", "providers", "expected"),
    [
        ("pt-BR", ["espeak"], "espeak_pt_br"),
        ("en", ["elevenlabs", "espeak"], "espeak_en"),
        ("pt-BR", ["azure", "espeak"], "azure_pt_br_antonio"),
    ],
)
def test_each_language_has_a_default_voice(language: str, providers: list[str], expected: str) -> None:
    assert default_voice(language, providers) == expected
    assert expected in KNOWN_VOICES


def test_a_language_without_a_default_voice_is_reported() -> None:
    with pytest.raises(UnknownVoice, match="'ja'"):
        default_voice("ja", ["espeak"])
