from __future__ import annotations

from pathlib import Path

import pytest

from retoma_apps.media.narration import RATE, join
from tests.apps.videos.media.material import mean_volume, names, samples, tone, wav

ONE, OTHER = wav([3000, -3000] * 6001), wav([3000, -3000] * 4000)


async def test_each_chunk_starts_on_time_with_longer_pauses_between_scenes(tmp_path: Path) -> None:
    joined = await join([ONE, OTHER, OTHER], tmp_path / "n.wav", scenes=[0, 0, 1], gap=0.25, scene_gap=0.5)
    first = 12002 / RATE
    second = first + 0.25 + 8000 / RATE
    assert joined.starts == pytest.approx((0, first + 0.25, second + 0.5))
    assert joined.ends == pytest.approx((first, second, second + 0.5 + 8000 / RATE))
    assert len(samples(tmp_path / "n.wav")) == round(joined.seconds * RATE)


async def test_a_narration_ends_with_the_requested_silence(tmp_path: Path) -> None:
    joined = await join([tone(0.5)], tmp_path / "n.wav", ending=0.75)
    audio = samples(tmp_path / "n.wav")
    assert (joined.seconds, joined.ends, len(audio)) == (1.25, (0.5,), round(1.25 * RATE))
    assert max(map(abs, audio[round(0.55 * RATE) :])) < 30


async def test_the_audio_is_where_the_start_times_say(tmp_path: Path) -> None:
    joined = await join([tone(0.5), tone(0.5)], tmp_path / "n.wav", gap=0.5)
    audio = samples(tmp_path / "n.wav")
    begin = round(joined.starts[1] * RATE)
    assert max(map(abs, audio[begin - 11000 : begin - 100])) < 30
    assert max(map(abs, audio[begin : begin + 500])) > 1000


@pytest.mark.parametrize("loudness", [0.01, 0.9])
async def test_quiet_and_loud_voices_are_normalised(tmp_path: Path, loudness: float) -> None:
    await join([tone(3.5, loudness)], tmp_path / "n.wav")
    assert mean_volume(tmp_path / "n.wav") == pytest.approx(-18.3, abs=0.5), (
        "which is -16 LUFS for a tone that both ears hear"
    )


async def test_silence_is_left_unchanged(tmp_path: Path) -> None:
    joined = await join([wav([0] * RATE)], tmp_path / "n.wav")
    assert joined.seconds == 1
    assert set(samples(tmp_path / "n.wav")) == {0}


async def test_a_chunk_may_be_a_file(tmp_path: Path) -> None:
    (tmp_path / "piece.wav").write_bytes(ONE)
    assert (await join([tmp_path / "piece.wav"], tmp_path / "n.wav")).seconds == 12002 / RATE


@pytest.mark.parametrize(
    ("piece", "why"),
    [
        (b"<html>busy</html>", "piece 2 .* is not WAV"),
        (b"", "piece 2 .* is not WAV"),
        (wav([], RATE), "piece 2 .* is empty"),
        (wav([1, 2], 22050), "piece 2 .* has 22050 Hz"),
        (wav([1, 2], channels=2), "2 channels"),
    ],
)
async def test_a_chunk_with_other_content_is_named_and_leaves_no_file(tmp_path: Path, piece: bytes, why: str) -> None:
    with pytest.raises(ValueError, match=why):
        await join([ONE, piece], tmp_path / "n.wav")
    assert names(tmp_path) == set()


async def test_a_narration_needs_at_least_one_chunk(tmp_path: Path) -> None:
    with pytest.raises(ValueError, match="nothing to join"):
        await join([], tmp_path / "n.wav")
