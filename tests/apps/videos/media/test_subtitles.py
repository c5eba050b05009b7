from __future__ import annotations

from retoma_apps.media.models import Line
from retoma_apps.media.subtitles import ass, srt, vtt
from retoma_apps.providers.captions import parse_srt

LINES = [Line(text="Ação,\ncoração", start=0.5, end=2), Line(text="pão às três", start=3599.9996, end=3601.25)]


def test_srt_is_numbered_and_uses_decimal_commas() -> None:
    assert srt(LINES) == (
        "1\n00:00:00,500 --> 00:00:02,000\nAção,\ncoração\n\n2\n01:00:00,000 --> 01:00:01,250\npão às três\n"
    )


def test_webvtt_has_its_header_and_decimal_points() -> None:
    assert vtt(LINES).startswith("WEBVTT\n\n1\n00:00:00.500 --> 00:00:02.000\nAção,\ncoração\n\n2\n01:00:00.000")


def test_our_srt_survives_a_round_trip() -> None:
    assert [segment.text for segment in parse_srt(srt(LINES))] == [line.text for line in LINES]


def test_text_cannot_end_its_subtitle_or_start_a_tag() -> None:
    hostile = [Line(text="a\n\n\r2\n00:00:00,000 --> 00:00:09,000\n<i>b</i> {\\pos(1,1)} & c\x00", start=0, end=1)]
    assert len(parse_srt(srt(hostile))) == 1
    assert "-->" not in srt(hostile).split("\n", 2)[2]
    assert "<i" not in srt(hostile)
    assert "&lt;i&gt;b&lt;/i&gt;" in vtt(hostile)
    assert "&amp; c" in vtt(hostile)
    assert vtt(hostile).count("-->") == 1
    assert "\n\n" not in vtt(hostile).removeprefix("WEBVTT\n\n")


def test_a_part_of_the_script_is_timed_from_its_own_start() -> None:
    many = [Line(text=str(at), start=at, end=at + 1) for at in range(10)]
    script = ass(many, 3.5, 5)
    assert [line.split(",")[1:3] + line.split(",")[-1:] for line in script.splitlines() if "Dialogue" in line] == [
        ["0:00:00.00", "0:00:00.50", "3"],
        ["0:00:00.50", "0:00:01.50", "4"],
    ]
