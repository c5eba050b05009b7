from __future__ import annotations

import pytest

from retoma_apps.providers.captions import Segment, Style, ass_script, parse_srt


def test_srt_is_read_in_any_encoding_and_line_ending() -> None:
    first = "\ufeff1\r\n00:00:01,500 --> 00:00:02,000 X1:0\r\nOlá,\r\n<b>mundo</b>\r\n\r\n\r\n"
    text = first + "00:01:00.5 --> 01:00:00.25\r\nfim"
    assert parse_srt(text) == [
        Segment(start=1.5, end=2.0, text="Olá,\nmundo"),
        Segment(start=60.5, end=3600.25, text="fim"),
    ]


TIMES = "00:00:01,000 --> 00:00:02,000"


@pytest.mark.parametrize(
    ("text", "why"),
    [
        ("", "empty"),
        ("1\nOlá", "block 1"),
        (f"1\n{TIMES}\nOlá\n\n2\nOlá", "block 2"),
        ("00:00:02,000 --> 00:00:01,000\nOlá", "block 1 of the subtitles: a segment ends at 1 s, which is not after"),
        pytest.param(f"{TIMES}\n{'a' * 2_001}", "^block 1 of the subtitles: .* 2000 characters$", id="a long text"),
        pytest.param(f"{TIMES}\n{'<b ' * 4_000}", "^block 1 .* limit of 10,000 characters", id="a long block"),
        pytest.param(f"{TIMES}\nOlá\n\n" * 10_001, "10,001 blocks, over the limit of 10,000", id="many blocks"),
    ],
)
def test_an_unreadable_srt_names_the_faulty_line(text: str, why: str) -> None:
    with pytest.raises(ValueError, match=why):
        parse_srt(text)


def test_an_unclosed_tag_is_text() -> None:
    line = "<b " * 600
    assert parse_srt(f"{TIMES}\n{line}</i>fim")[0].text == f"{line}fim"


def test_a_script_has_a_line_per_segment_and_bgr_colours() -> None:
    script = ass_script([Segment(start=3599.999, end=3661.5, text="um\ndois")], Style(color="#ff8000", bold=True))
    assert "Dialogue: 0,1:00:00.00,1:01:01.50,Default,,0,0,0,,um\\Ndois\n" in script
    assert "&H000080FF" in script


def test_text_cannot_start_a_new_line_or_command() -> None:
    script = ass_script([Segment(start=0, end=1, text="a\r\nDialogue: x\x00{\\pos(0,0)}\\N")], Style())
    assert script.count("\nDialogue:") == 1
    assert script.endswith(",,a\\NDialogue: x\\{\\\u2060pos(0,0)\\}\\\u2060N\n")
