from __future__ import annotations

import sys
from itertools import count

import pytest
from pydantic import ValidationError

from retoma_apps.autowriter import models
from retoma_apps.autowriter.steps.csv_file import MAX_BYTES, MAX_LINES, MAX_ROWS, parse_csv
from tests.apps.autowriter.samples import HEADER, LINE, make_request

FILE = f"{HEADER}\n{LINE}\n"


def read_errors(text: str) -> list[tuple[int, str]]:
    return [(error.line, error.code) for error in parse_csv(text.encode()).errors]


@pytest.mark.parametrize("encoding", ["utf-8", "utf-8-sig", "latin-1", "utf-16", "utf-16-le", "utf-16-be"])
def test_common_encodings_are_read(encoding: str) -> None:
    parsed = parse_csv(FILE.encode(encoding))
    assert parsed.errors == ()
    assert [each.article for each in parsed.lines] == [make_request()]


def test_a_file_saved_by_excel_keeps_its_quotes_and_dashes() -> None:
    theme = "Café \u2013 “o guia”"
    (line,) = parse_csv(FILE.replace("Café e cafeína", theme).encode("cp1252")).lines
    assert line.article.theme == theme


@pytest.mark.parametrize(
    ("encoding", "bad"), [("utf-8", b"\xff"), ("utf-8", b"\xe9"), ("utf-8-sig", b"\xe9"), ("utf-16", b"\x00\xd8")]
)
def test_a_byte_that_is_wrong_in_the_encoding_of_the_file_is_refused_with_its_line(encoding: str, bad: bytes) -> None:
    content = f"{FILE}{LINE}\r{LINE.replace('400', '4@0')}\r\n{LINE}\n".encode(encoding)
    parsed = parse_csv(content.replace("@".encode(encoding.removesuffix("-sig").replace("16", "16-le")), bad))
    assert parsed.lines == ()
    assert [(error.line, error.code) for error in parsed.errors] == [(4, "CSV_INVALID")]
    assert f"not {encoding[:6].upper().rstrip('-')}" in parsed.errors[0].message


def test_a_text_of_windows_that_contains_valid_utf8_by_chance_is_read() -> None:
    theme = "“O CAFÉ” é bom"  # É and the quote after it are a character in UTF-8 too
    (line,) = parse_csv(FILE.replace("Café e cafeína", theme).encode("cp1252")).lines
    assert line.article.theme == theme


@pytest.mark.parametrize("start", ["sep=;\n", "SEP=;\r\n", "\ufeffsep=;\r"])
def test_the_delimiter_line_of_excel_is_used_and_skipped(start: str) -> None:
    line = LINE.replace(",", ";").replace("Café e cafeína", "Café, chá, mate, cacau")
    parsed = parse_csv(f"{start}{HEADER.replace(',', ';')}\n{line}\n{line.replace('400', 'x')}\n".encode())
    assert [(each.line, each.article.theme) for each in parsed.lines] == [(3, "Café, chá, mate, cacau")]
    assert [error.line for error in parsed.errors] == [4]


@pytest.mark.parametrize("delimiter", [",", ";", "\t", "|"])
def test_common_delimiters_are_read(delimiter: str) -> None:
    parsed = parse_csv(FILE.replace(",", delimiter).encode())
    assert [each.article for each in parsed.lines] == [make_request()]


def test_a_quoted_cell_may_contain_delimiters_quotes_and_line_breaks() -> None:
    line = 'saude,"Café, ""forte""\nou fraco",explicar,pt,400'
    parsed = parse_csv(f"{HEADER}\n{line}\n{LINE}\n".encode())
    assert [(each.line, each.article.theme) for each in parsed.lines] == [
        (2, 'Café, "forte" ou fraco'),
        (4, "Café e cafeína"),
    ]


def test_each_wrong_line_is_named_with_what_is_wrong() -> None:
    text = f"{HEADER}\n{LINE}\nsaude,Café,x,pt,400\nsaude,Café,explicar,tlh,dez\n\nsaude,Café,explicar,pt,400,a,b\n"
    parsed = parse_csv(text.encode())
    assert [(error.line, error.code) for error in parsed.errors] == [(n, "CSV_INVALID") for n in (3, 4, 6)]
    assert "objective" in parsed.errors[0].message
    assert "language" in parsed.errors[1].message
    assert "word_count" in parsed.errors[1].message
    assert "7 cells" in parsed.errors[2].message
    assert [each.line for each in parsed.lines] == [2]


@pytest.mark.parametrize(
    ("text", "line", "message"),
    [
        ("", 0, "empty"),
        (f"{HEADER}\n", 0, "no lines"),
        ("theme,objective\na,b\n", 1, "lacks blog_id"),
        (f"{HEADER},colour\n{LINE},red\n", 1, "unknown columns: colour"),
        (f"{HEADER},theme\n{LINE},x\n", 1, "theme twice"),
        (f'{HEADER}\n{LINE}\nsaude,"Café\n', 3, "cannot be read"),
        (f"{HEADER}\n{LINE}\0\n", 0, "zero bytes"),
    ],
)
def test_a_file_that_cannot_be_read_says_where_and_why(text: str, line: int, message: str) -> None:
    (error,) = parse_csv(text.encode()).errors
    assert (error.line, error.code) == (line, "CSV_INVALID")
    assert message in error.message


def test_the_work_to_read_lines_grows_only_with_their_number() -> None:
    few, many = (count_calls_to_read(number) for number in (MAX_ROWS // 100, MAX_ROWS // 10))
    assert many < 10.5 * few


def count_calls_to_read(number: int) -> int:
    lines = "\n".join(LINE.replace("400", str(200 + each % 4800)) for each in range(number))
    content = f"{HEADER}\n{lines}\n".encode()
    calls = count()
    sys.setprofile(lambda *_: next(calls))
    try:
        parsed = parse_csv(content)
    finally:
        sys.setprofile(None)
    assert len(parsed.lines) == number
    return next(calls)


def test_a_longer_file_is_refused_as_a_whole() -> None:
    lines = "\n".join([LINE] * (MAX_ROWS + 1))
    parsed = parse_csv(f"{HEADER}\n{lines}\n".encode())
    assert parsed.lines == ()
    assert [error.line for error in parsed.errors] == [MAX_ROWS + 2]
    assert parse_csv(b"a" * (MAX_BYTES + 1)).errors[0].line == 0


def test_the_version_of_the_pipeline_is_ignored_and_regenerate_is_no_part_of_the_article() -> None:
    text = f"{HEADER},pipeline_version,regenerate\n{LINE},7,sim\n{LINE},8,\n{LINE},8,perhaps\n"
    parsed = parse_csv(text.encode())
    assert [(each.article, each.regenerate) for each in parsed.lines] == [
        (make_request(), True),
        (make_request(), False),
    ]
    assert read_errors(text) == [(4, "CSV_INVALID")]


@pytest.mark.parametrize("field", ["theme", "keyword", "blog_id"])
def test_a_text_beyond_its_limit_is_refused_before_it_is_normalised(
    field: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    normalized: list[int] = []

    def record(text: str) -> str:
        normalized.append(len(text))
        return text

    monkeypatch.setattr(models, "compose", record)
    with pytest.raises(ValidationError, match=field):
        make_request(**{field: "é" * 1_000_000})
    assert max(normalized) <= models.LONGEST_INPUT


@pytest.mark.timeout(60)  # comparing all columns with each other would take hours
def test_a_header_of_many_columns_is_refused() -> None:
    header = f"{HEADER}{',theme' * 200_000}"
    (error,) = parse_csv(f"{header}\n{LINE}\n".encode()).errors
    assert (error.line, error.message) == (1, "the header has theme twice")


def test_zero_bytes_are_named_as_such() -> None:
    content = FILE.replace("theme", "the\0me").encode()
    (error,) = parse_csv(content).errors
    assert "zero bytes" in error.message


@pytest.mark.parametrize("end", ["\n", "\r"])
def test_empty_lines_count_towards_a_limit(end: str) -> None:
    (error,) = parse_csv((FILE + end * MAX_LINES).encode()).errors
    assert (error.line, "100,000 lines" in error.message) == (0, True)
