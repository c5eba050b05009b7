from __future__ import annotations

from dataclasses import replace

import pytest

from retoma_apps.providers.footage import FoundClip, choose_clip, coverage, rank_clips, relevance
from retoma_apps.providers.footage.matching import keywords

CLIP = FoundClip("pexels-1", "pexels", "", "", "", "", 10, 1920, 1080, ("vulcao", "oceano"))


def test_accents_case_plurals_and_stop_words_are_ignored() -> None:
    assert keywords("Os VULCÕES e a ação do mar") == ["vulcao", "acao", "mar"]
    assert keywords("The Cities of the animals") == ["city", "animal"]
    assert keywords("imagens de animais, 1999") == ["imagem", "animal", "1999"]


@pytest.mark.parametrize(
    ("query", "expected"),
    [
        ("vulcões no oceano", 1.0),
        ("volcano in the ocean", 0.65),
        ("o vulcão", 1.0),
        ("vulcão e neve", 0.65),
        ("comércio", 0.3),
        ("de a o", 0.3),
        ("", 0.3),
    ],
)
def test_relevance_is_the_share_of_the_words_among_the_tags(query: str, expected: float) -> None:
    assert relevance(query, CLIP) == expected


def test_words_with_a_common_prefix_do_not_match() -> None:
    assert relevance("comer", replace(CLIP, tags=("comércio",))) == 0.3
    assert relevance("história", replace(CLIP, tags=("history",))) == 1.0


def test_short_and_small_clips_are_less_relevant_and_scores_stay_in_range() -> None:
    short, small = replace(CLIP, seconds=2), replace(CLIP, width=640, height=360)
    assert rank_clips("vulcão", [short, small, CLIP])[0] is CLIP
    assert 0 < relevance("vulcão", short) < 1 > relevance("vulcão", small) > 0
    assert relevance("x", replace(CLIP, seconds=-1, width=-5)) == 0
    assert relevance("vulcão", replace(CLIP, seconds=9999, width=9999)) == 1


def test_equally_relevant_clips_keep_the_order_of_the_provider() -> None:
    founds = [replace(CLIP, id=str(number)) for number in range(5)]
    assert rank_clips("vulcão", founds) == founds


def test_a_clip_is_used_once_while_there_are_others() -> None:
    first, second = CLIP, replace(CLIP, id="pexels-2")
    assert choose_clip([first, second], set()) is first
    assert choose_clip([first, second], {"pexels-1"}) is second
    assert choose_clip([first, second], {"pexels-1", "pexels-2"}) is first
    assert choose_clip([], {"pexels-1"}) is None


def test_coverage_is_a_percentage_and_never_above_100() -> None:
    assert coverage([10, 5.55], 60) == 25.9
    assert coverage([10] * 62, 612) == 100
    assert coverage([], 60) == coverage([10], 0) == 0
