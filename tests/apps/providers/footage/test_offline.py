"""Clips drawn on this machine: real ffmpeg, tiny frames."""

from __future__ import annotations

from itertools import pairwise
from pathlib import Path

import av
import pytest
from PIL import Image, ImageChops

from retoma_apps.providers.drawing import draw_text
from retoma_apps.providers.footage import ClipUnusable, FoundClip, relevance
from retoma_apps.providers.footage.offline import Frames, OfflineFootage
from tests.apps.providers.footage.conftest import TINY, names, tiny

HOSTILE = "a'b:c;[d],e=f\\%{x}\n\x00/../../etc: \ud800 <&>"


async def test_a_clip_has_the_promised_length_and_size(tmp_path: Path) -> None:
    found, *_ = await OfflineFootage(TINY).search("mar", language="pt-BR", seconds=9.3)
    await OfflineFootage(TINY).fetch(found, tmp_path / "clip.mp4")
    frames = decode(tmp_path / "clip.mp4")
    assert (found.seconds, len(frames), frames[0].size) == (9.3, 93, (64, 36))
    assert names(tmp_path) == ["clip.mp4"]


async def test_a_clip_moves_from_frame_to_frame_and_loops_seamlessly(tmp_path: Path) -> None:
    frames = Frames(160, 90, 10)
    found, *_ = await OfflineFootage(frames, longest=6).search("mar", language="en", seconds=6)
    await OfflineFootage(frames).fetch(found, tmp_path / "clip.mp4")
    shown = [frame.resize((16, 9), Image.Resampling.BOX) for frame in decode(tmp_path / "clip.mp4")]
    steps = [difference(one, other) for one, other in pairwise(shown)]
    assert difference(shown[0], shown[15]) > 3
    assert steps[29] < max(steps[:29]) * 1.5


@pytest.mark.parametrize(("wanted", "values"), [(1, 8), (9, 9), (600, 15)])
async def test_clips_last_from_8_to_15_seconds(wanted: float, values: float) -> None:
    assert {found.seconds for found in await OfflineFootage().search("mar", language="en", seconds=wanted)} == {values}


async def test_a_search_returns_several_different_matching_clips(tmp_path: Path) -> None:
    founds = await tiny().search("Ondas do mar", language="pt-BR", seconds=1)
    assert len({found.id for found in founds}) == len(founds) == 6
    assert len(await tiny().search("Ondas do mar", language="pt-BR", seconds=1, limit=2)) == 2
    assert {found.source for found in founds} == {"offline"}
    assert relevance("ondas do mar", founds[0]) > 0.7
    one, other = [await render_picture(found, tmp_path) for found in founds[:2]]
    assert difference(one, other) > 10


async def test_different_words_return_different_clips_and_the_same_words_the_same_clip(tmp_path: Path) -> None:
    sea, again, city = [
        await render_picture((await tiny().search(query, language="en", seconds=1))[0], tmp_path)
        for query in ("mar", "mar", "cidade")
    ]
    assert difference(sea, again) == 0
    assert difference(sea, city) > 10


async def test_words_are_drawn_with_their_accents(tmp_path: Path) -> None:
    large = OfflineFootage(Frames(480, 270, 10), longest=0.1)
    plain, accented = [
        await count_white_pixels((await large.search(query, language="pt-BR", seconds=1))[0], large, tmp_path)
        for query in ("acao", "ação")
    ]
    assert plain > 300
    assert accented > plain


def test_characters_without_a_glyph_are_not_drawn() -> None:
    plain = draw_text("a b", 64, 36).tobytes()
    assert draw_text("a\ue000\n\x00b", 64, 36).tobytes() == plain
    assert draw_text("a c", 64, 36).tobytes() != plain


@pytest.mark.parametrize("query", ["", " ", HOSTILE, "x" * 5000, "漢字"])
async def test_no_query_breaks_the_drawing_or_escapes_its_folder(query: str, tmp_path: Path) -> None:
    found, *_ = await tiny().search(query, language="en", seconds=1)
    await tiny(0.2).fetch(found, tmp_path / "clip.mp4")
    assert decode(tmp_path / "clip.mp4")
    assert names(tmp_path) == ["clip.mp4"]


async def test_a_clip_from_another_source_is_rejected(tmp_path: Path) -> None:
    unauthorised = FoundClip("pexels-1", "pexels", "", "", "https://example.com/1.mp4", "", 8, 64, 36)
    for fetch in (tiny().fetch, tiny().fetch_thumbnail):
        with pytest.raises(ClipUnusable):
            await fetch(unauthorised, tmp_path / "clip.mp4")


def decode(path: Path) -> list[Image.Image]:
    with av.open(str(path)) as clip:
        return [frame.to_image() for frame in clip.decode(video=0)]  # type: ignore[no-untyped-call]


async def render_picture(found: FoundClip, folder: Path) -> Image.Image:
    await tiny().fetch_thumbnail(found, folder / "clip.jpg")
    with Image.open(folder / "clip.jpg") as picture:
        assert (picture.format, picture.size) == ("JPEG", (64, 36))
        return picture.convert("RGB")


def difference(one: Image.Image, other: Image.Image) -> float:
    """Return the mean difference of the pixels' brightness, from 0 to 255."""
    shares = ImageChops.difference(one, other).convert("L").histogram()
    return sum(value * count for value, count in enumerate(shares)) / (one.width * one.height)


async def count_white_pixels(found: FoundClip, footage: OfflineFootage, folder: Path) -> int:
    """Count the pixels that are nearly white."""
    await footage.fetch_thumbnail(found, folder / "clip.jpg")
    with Image.open(folder / "clip.jpg") as picture:
        return sum(picture.convert("L").histogram()[230:])
