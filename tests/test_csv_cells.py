"""Cells that spreadsheets do not run, whatever separator they split by."""

from __future__ import annotations

import csv
import io

import pytest

from retoma.csv_cells import format_csv

SIGNS = "=+-@＝＋－＠"  # noqa: RUF001


@pytest.mark.parametrize("separator", [",", ";", "\t", "|"])
@pytest.mark.parametrize(
    "text", ["=1+1", "x;=1+1;y.txt", "x; =1+1", "x\t@SUM(A1)", "x|-1|y", "\t=1", "\r=1", "a\n=1", SIGNS[4:], '";=1']
)
def test_no_separator_makes_a_formula_of_a_text(text: str, separator: str) -> None:
    lines = format_csv([["id", text, "last"], [text, 1, None]])
    for row in csv.reader(io.StringIO(lines.replace("\r", "\n")), delimiter=separator):
        assert [cell for cell in row if cell.strip().startswith(tuple(SIGNS))] == []


def test_every_cell_is_quoted_and_plain_text_and_numbers_stay() -> None:
    assert format_csv([["a-b; c", -1, None, 'd"e']]) == '"a-b; c","-1","","d""e"\r\n'
