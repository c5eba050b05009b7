from __future__ import annotations

import asyncio
from dataclasses import replace
from itertools import pairwise
from pathlib import Path
from types import SimpleNamespace

import pytest
from PIL import ImageChops

from retoma import File
from retoma_apps.media import assembly
from retoma_apps.media.assembly import BadShot, Shot, assemble
from retoma_apps.media.models import Line
from retoma_apps.providers import ffmpeg
from retoma_apps.providers.ffmpeg import FfmpegFailed, probe
from retoma_apps.videos.models import Clip
from retoma_apps.videos.steps.footage import choose_transition
from tests.apps.videos.media.material import SMALL, clip, frame, mean_volume, names, pixels, tone

COLOURS = ("red", "lime", "blue")
SHADES = {"red": (255, 0, 0), "lime": (0, 255, 0), "blue": (0, 0, 255)}


@pytest.fixture
def sound(tmp_path: Path) -> Path:
    (tmp_path / "narration.wav").write_bytes(tone(3.0))
    return tmp_path / "narration.wav"


def shots(folder: Path, *seconds: float, **clips: int | float | str) -> list[Shot]:
    colours = [COLOURS[number % 3] for number in range(len(seconds))]
    return [
        Shot(clip(folder / f"it's {number}: $x.mp4", colour, **clips), each)  # type: ignore[arg-type]
        for number, (colour, each) in enumerate(zip(colours, seconds, strict=True))
    ]


async def film(folder: Path, film_shots: list[Shot], sound: Path, lines: list[Line] | None = None) -> list[str | None]:
    """Return the colour of each frame, or None in a fade."""
    await assemble(film_shots, sound, lines or [], folder / "film.mp4", size=SMALL)
    return [_named(shade) for shade in pixels(folder / "film.mp4")]


def _named(shade: tuple[int, int, int]) -> str | None:
    near = [name for name, known in SHADES.items() if all(abs(a - b) < 40 for a, b in zip(shade, known, strict=True))]
    return near[0] if near else None


async def test_a_video_is_as_long_as_its_narration_and_plays_everywhere(tmp_path: Path, sound: Path) -> None:
    made = await assemble(shots(tmp_path, 1, 1, 1), sound, [], tmp_path / "film.mp4", size=SMALL)
    seen = await probe(tmp_path / "film.mp4")
    assert (seen.width, seen.height, seen.video_codec, seen.audio_codec) == (*SMALL, "h264", "aac")
    assert seen.seconds == made.seconds == pytest.approx(3.0, abs=0.05)
    assert made.size == (tmp_path / "film.mp4").stat().st_size
    assert mean_volume(tmp_path / "film.mp4") == pytest.approx(mean_volume(sound), abs=1)
    head = (tmp_path / "film.mp4").read_bytes()
    assert head.index(b"moov") < head.index(b"mdat")


async def test_shots_change_at_their_times_with_a_fade_around_each_cut(tmp_path: Path, sound: Path) -> None:
    seen = await film(tmp_path, shots(tmp_path, 1, 1, 1), sound)
    assert len(seen) == 90
    assert [seen[at] for at in (0, 20, 40, 50, 70, 89)] == ["red", "red", "lime", "lime", "blue", "blue"]
    assert seen[30] is None
    assert seen[60] is None


async def test_a_slide_never_blends_the_pictures_of_two_shots(tmp_path: Path, sound: Path) -> None:
    sliding = [replace(shot, transition="slideleft") for shot in shots(tmp_path, 1, 1, 1)]
    assert None not in await film(tmp_path, sliding, sound)


def test_drawn_clips_with_text_slide_in_and_stock_footage_fades_in() -> None:
    file = File(file="0" * 64)
    drawn, stock = [
        [Clip(video=file, thumbnail=file, source=source, query="x", seconds=1, relevance=1, scene=0)] * 10
        for source in ("offline", "pexels")
    ]
    assert {choose_transition(number, clip) for number, clip in enumerate(stock)} == {"fade"}
    moves = {choose_transition(number, clip) for number, clip in enumerate(drawn)}
    assert len(moves) > 2
    assert all(move.startswith(("slide", "wipe")) for move in moves)


async def test_a_clip_that_is_too_short_loops(tmp_path: Path, sound: Path) -> None:
    assert await film(tmp_path, shots(tmp_path, 3, seconds=0.4), sound) == ["red"] * 90


@pytest.mark.parametrize("size", ["64x200", "400x40"])
async def test_a_clip_with_another_aspect_ratio_and_frame_rate_fills_the_frame(
    tmp_path: Path, sound: Path, size: str
) -> None:
    await assemble(shots(tmp_path, 3, size=size, rate=50), sound, [], tmp_path / "film.mp4", size=SMALL)
    image = frame(tmp_path / "film.mp4", 1)
    corners = [(0, 0), (SMALL[0] - 1, 0), (0, SMALL[1] - 1), (SMALL[0] - 1, SMALL[1] - 1)]
    assert {_named(image.getpixel(corner)) for corner in corners} == {"red"}  # type: ignore[arg-type]


@pytest.mark.parametrize("seconds", [(1.0, 0.5), (2, 9), (0, 3, 0), (0.01, 0.02, 1)])
async def test_shots_that_do_not_add_up_are_cut_or_frozen(
    tmp_path: Path, sound: Path, seconds: tuple[float, ...]
) -> None:
    assert len(await film(tmp_path, shots(tmp_path, *seconds), sound)) == 90


async def test_a_long_video_is_rendered_in_parts_without_visible_seams(
    tmp_path: Path, sound: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    shot_list = shots(tmp_path, *[0.6] * 5)
    lines = [Line(text="Ação", start=0.2, end=2.8)]
    whole = await film(tmp_path, shot_list, sound, lines)
    monkeypatch.setattr(assembly, "SHOTS_PER_SEGMENT", 2)
    assert await film(tmp_path, shot_list, sound, lines) == whole
    assert len(whole) == 90


@pytest.mark.parametrize("lengths", [[1], [1, 1], [30, 1, 30, 1, 1, 7, 2, 30, 31, 3, 1, 90, 4, 5, 6, 7, 8, 1]])
def test_the_parts_contain_every_frame_once(lengths: list[int], monkeypatch: pytest.MonkeyPatch) -> None:
    for most in (1, 2, 3, 8):
        monkeypatch.setattr(assembly, "SHOTS_PER_SEGMENT", most)
        reels = assembly._plan_segments(list(enumerate(lengths)), 15)
        assert sum(reel.frames for reel in reels) == sum(lengths)
        assert all(before.start + before.frames == after.start for before, after in pairwise(reels))
        assert all(take.frames > 0 and take.fade <= take.frames for reel in reels for take in reel.takes)
        for before, after in pairwise(reels):
            assert after.takes[0].skip == before.takes[-1].frames


async def test_subtitles_are_burned_in_with_their_accents(tmp_path: Path, sound: Path) -> None:
    shot_list, bands = shots(tmp_path, 3), set()
    for text in ("ação", "acao", "a\ue000\ue001o"):  # the last has characters that no font has
        await assemble(shot_list, sound, [Line(text=text, start=0, end=3)], tmp_path / "film.mp4", size=SMALL, fps=2)
        bands.add(frame(tmp_path / "film.mp4", 1).crop((0, 55, *SMALL)).tobytes())
    assert len(bands) == 3


async def test_subtitles_are_shown_for_their_duration_only(tmp_path: Path, sound: Path) -> None:
    lines = [Line(text="Ação, coração,\npão às três", start=1, end=2)]
    await assemble(shots(tmp_path, 3), sound, lines, tmp_path / "film.mp4", size=SMALL)
    brightest = []
    for at in (0.5, 1.5, 2.5):
        lower = frame(tmp_path / "film.mp4", at).crop((0, 55, *SMALL))
        darkest_channel = ImageChops.darker(ImageChops.darker(*lower.split()[:2]), lower.split()[2])
        brightest.append(max(shade for shade, count in enumerate(darkest_channel.histogram()) if count))
    assert brightest[0] < 40
    assert brightest[1] > 100
    assert brightest[2] < 40


async def test_the_error_names_a_clip_that_is_not_a_video(tmp_path: Path, sound: Path) -> None:
    shot_list = shots(tmp_path, 1, 1, 1)
    shot_list[1].path.write_bytes(b"#EXTM3U\nfile:///etc/hostname\n")
    with pytest.raises(BadShot, match="shot 2") as raised:
        await assemble(shot_list, sound, [], tmp_path / "film.mp4", size=SMALL)
    assert raised.value.number == 2


async def test_a_video_needs_at_least_one_shot(tmp_path: Path, sound: Path) -> None:
    with pytest.raises(ValueError, match="nothing to show"):
        await assemble([], sound, [], tmp_path / "film.mp4", size=SMALL)


async def test_a_stopped_assembly_leaves_the_previous_video_and_nothing_else(
    tmp_path: Path, sound: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "film.mp4").write_bytes(b"the former")
    shot_list = shots(tmp_path, 1, 1, 1)
    there = names(tmp_path)
    begun = asyncio.Event()

    async def run(arguments: list[str], folder: Path) -> None:
        await ffmpeg.run(arguments, folder, lambda _: begun.set())

    monkeypatch.setattr(
        assembly, "ffmpeg", SimpleNamespace(run=run, media_input=ffmpeg.media_input, probe=ffmpeg.probe)
    )
    work = asyncio.create_task(assemble(shot_list, sound, [], tmp_path / "film.mp4", size=SMALL))
    await begun.wait()
    work.cancel()
    with pytest.raises(asyncio.CancelledError):
        await work
    assert (tmp_path / "film.mp4").read_bytes() == b"the former"
    assert names(tmp_path) == there


async def test_a_video_with_the_wrong_length_never_replaces_the_previous_one(
    tmp_path: Path, sound: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(assembly, "MAX_LENGTH_DIFFERENCE", -1)
    with pytest.raises(FfmpegFailed, match=r"its narration 3\.00 s"):
        await assemble(shots(tmp_path, 3), sound, [], tmp_path / "film.mp4", size=SMALL)
    assert not (tmp_path / "film.mp4").exists()
