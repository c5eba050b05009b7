from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from retoma_apps.providers.youtube.text_limits import fit_texts
from tests.apps.providers.youtube.conftest import MARK, make_video


def count_characters(tags: tuple[str, ...]) -> int:
    """Count as YouTube does."""
    return sum(len(tag) + 2 * (" " in tag) for tag in tags) + len(tags) - 1


@given(st.text(max_size=300), st.text(max_size=6000), st.lists(st.text(max_size=120), max_size=30))
def test_any_text_is_cut_to_fit(title: str, description: str, tags: list[str]) -> None:
    video = fit_texts(make_video(title=title, description=description, tags=tuple(tags)))
    assert 0 < len(video.title) <= 100
    assert "\n" not in video.title
    assert len(video.description.encode()) <= 5000
    assert not set("<>\0") & set(video.title + video.description + "".join(video.tags))
    assert video.tags[0] == MARK
    assert count_characters(video.tags) <= 500
    assert fit_texts(video) == video


def test_a_description_is_cut_by_bytes_and_between_characters() -> None:
    assert fit_texts(make_video(description="x" + "ã" * 3000)).description == "x" + "ã" * 2499


CREDITS = tuple(f"Ana {number} (pexels): https://pexels.example/{number}" for number in range(200))


@pytest.mark.parametrize("count", [1, 20, 110])
def test_a_long_description_is_cut_before_its_credits(count: int) -> None:
    described = fit_texts(make_video(description="ã" * 4500, credits=CREDITS[:count])).description
    assert described.endswith("ã\n\n" + "\n".join(CREDITS[:count]))
    assert 4999 <= len(described.encode()) <= 5000


def test_credits_that_are_too_long_on_their_own_lose_whole_lines() -> None:
    described = fit_texts(make_video(description="Text", credits=CREDITS)).description
    assert len(described.encode()) <= 5000
    assert set(described.splitlines()) <= {*CREDITS, *_BEGINNINGS, ""}


_BEGINNINGS = {"Text"[:length] for length in range(5)}


def test_texts_that_fit_stay_unchanged() -> None:
    video = make_video(description="Linha um\n\nLinha dois: ação 🎬", tags=("renda fixa", "renda fixa", 'a,"b'))
    assert fit_texts(video).description == video.description
    assert fit_texts(video).tags == (MARK, "renda fixa", "a b")


def test_tags_that_exceed_the_limit_are_omitted_and_spaces_cost_quotation_marks() -> None:
    tags = fit_texts(make_video(tags=tuple(f"{number:02} {'x' * 20}" for number in range(30)))).tags
    assert count_characters(tags) <= 500 < count_characters((*tags, tags[-1]))
