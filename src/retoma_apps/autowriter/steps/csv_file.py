"""Read a CSV file of articles: its encoding, its delimiter, and each line with what is wrong with it."""

from __future__ import annotations

import codecs
import csv
import io
import re
from collections import Counter
from collections.abc import Iterator, Mapping
from contextlib import suppress
from dataclasses import dataclass, field

from pydantic import ValidationError

from retoma.translations import N_
from retoma_apps.autowriter.models import ArticleRequest, ImportedLine

MAX_ROWS = 5_000
MAX_LINES = 100_000
"""Lines with the empty ones, and those within cells."""
MAX_BYTES = 20 * 1024**2
DELIMITERS = ",;\t|"
REQUIRED_COLUMNS = tuple(name for name, field in ArticleRequest.model_fields.items() if field.is_required())
OPTIONAL_COLUMNS = tuple(name for name, field in ArticleRequest.model_fields.items() if not field.is_required())
REGENERATE = "regenerate"
IGNORED_COLUMNS = ("pipeline_version",)
"""The version of the pipeline identifies no article: a new one alone changes nothing."""
_TRUE = ("1", "true", "yes", "sim", "si", "sí", "x")
_FALSE = ("", "0", "false", "no", "não", "nao")
_LINE_ENDS = re.compile(r"\r\n|\r|\n")
_ESCAPED_BYTES = re.compile("[\udc80-\udcff]")
_BEYOND_ASCII = re.compile("[\x80-\ud7ff\ue000-\U0010ffff]")
_DELIMITER_LINE = re.compile(r"sep=([^\r\n\"])[ \t]*(?:\r\n|\r|\n)", re.IGNORECASE)
_MARKS = (
    (codecs.BOM_UTF8, "utf-8-sig"),
    (codecs.BOM_UTF16_LE, "utf-16"),
    (codecs.BOM_UTF16_BE, "utf-16"),
)


@dataclass(frozen=True)
class LineError:
    """What is wrong with a line, counted from 1 with the header. Line 0 is the file as a whole.

    `template` and `values` are the message for translation; it is that of pydantic if there are wrong `fields`.
    """

    line: int
    code: str
    template: str
    values: Mapping[str, object] = field(default_factory=dict)
    fields: tuple[str, ...] = ()

    @property
    def message(self) -> str:
        return self.template % self.values if self.values else self.template


@dataclass(frozen=True)
class ParsedFile:
    lines: tuple[ImportedLine, ...]
    errors: tuple[LineError, ...]


def parse_csv(content: bytes) -> ParsedFile:
    """Return the valid lines of a file, and the errors of the others."""
    try:
        rows = _read_rows(content)
    except InvalidFile as error:
        return ParsedFile((), (LineError(error.line, "CSV_INVALID", error.template, error.values),))
    lines: list[ImportedLine] = []
    errors: list[LineError] = []
    for number, values in rows:
        parsed = _parse_line(number, values)
        (lines if isinstance(parsed, ImportedLine) else errors).append(parsed)  # type: ignore[arg-type]
    if not rows:
        errors.append(LineError(0, "CSV_INVALID", N_("the file has no lines below its header")))
    return ParsedFile(tuple(lines), tuple(errors))


class InvalidFile(Exception):
    def __init__(self, line: int, template: str, **values: object) -> None:
        super().__init__(template)
        self.line = line
        self.template = template
        self.values = values


def decode_text(content: bytes) -> str:
    """Return the text: UTF-8 or UTF-16, as their marks say, else UTF-8 if it is, else UTF-16 or Windows-1252.

    Latin-1 is the rest: it decodes any bytes, so a text in another 8-bit encoding has wrong accents. Raise InvalidFile
    if a text in UTF-8 or UTF-16 has a wrong byte.
    """
    for mark, encoding in _MARKS:
        if content.startswith(mark):
            return _decode_strictly(content, encoding)
    if (unmarked := _guess_unmarked_utf16(content)) is not None:
        return _decode_strictly(content, unmarked)
    if _is_mostly_utf8(content):
        return _decode_strictly(content, "utf-8")
    with suppress(UnicodeDecodeError):
        return content.decode("cp1252")
    return content.decode("latin-1")


def _decode_strictly(content: bytes, encoding: str) -> str:
    try:
        return content.decode(encoding)
    except UnicodeDecodeError as error:
        before = bytes(error.object[: error.start]).decode(encoding, errors="replace")
        line = len(_LINE_ENDS.findall(before)) + 1
        name = "UTF-16" if encoding.startswith("utf-16") else "UTF-8"
        raise InvalidFile(
            line, N_("the line has a byte that is not %(encoding)s: save the file as UTF-8"), encoding=name
        ) from error


def _is_mostly_utf8(content: bytes) -> bool:
    """Return whether more characters than wrong bytes are UTF-8, or nothing is wrong.

    In a text in Windows-1252, two of its letters can be one of UTF-8 by chance, but most of them are wrong.
    """
    text = content.decode("utf-8", errors="surrogateescape")
    wrong = len(_ESCAPED_BYTES.findall(text))
    return wrong == 0 or len(_BEYOND_ASCII.findall(text)) > wrong


def _guess_unmarked_utf16(content: bytes) -> str | None:
    """Return the encoding if every other byte of the header is zero, as in UTF-16 without a mark."""
    start = content[:64]
    first, second = start[0::2].count(0), start[1::2].count(0)
    if len(start) < 8 or max(first, second) < 0.7 * len(start) / 2:
        return None
    return "utf-16-le" if second > first else "utf-16-be"


def _read_rows(content: bytes) -> list[tuple[int, dict[str, str] | tuple[int, int]]]:
    """Return the values by column of each line that is not empty, with its number in the file."""
    if len(content) > MAX_BYTES:
        raise InvalidFile(
            0,
            N_("the file has %(size)s bytes, over the limit of %(limit)s: split it"),
            size=f"{len(content):,}",
            limit=f"{MAX_BYTES:,}",
        )
    text = decode_text(content).removeprefix("\ufeff")
    if "\0" in text:
        raise InvalidFile(0, N_("the file contains zero bytes: save it as CSV"))
    if text.count("\n") + text.count("\r") > MAX_LINES:
        raise InvalidFile(0, N_("the file has more than %(limit)s lines: split it"), limit=f"{MAX_LINES:,}")
    delimiter_line = _DELIMITER_LINE.match(text)  # Excel's
    delimiter = _find_delimiter(text) if delimiter_line is None else delimiter_line[1]
    skipped = "" if delimiter_line is None else delimiter_line[0]
    reader = csv.reader(io.StringIO(text.removeprefix(skipped), newline=""), delimiter=delimiter, strict=True)
    columns: list[str] | None = None
    rows: list[tuple[int, dict[str, str] | tuple[int, int]]] = []
    for number, cells in _number_lines(reader, first=2 if skipped else 1):
        if columns is None:
            columns = _check_header(number, cells)
            continue
        if len(rows) == MAX_ROWS:
            raise InvalidFile(number, N_("the file has more than %(limit)s lines: split it"), limit=f"{MAX_ROWS:,}")
        rows.append((number, _name_cells(columns, cells)))
    if columns is None:
        raise InvalidFile(0, N_("the file is empty"))
    return rows


def _number_lines(reader: Iterator[list[str]], first: int) -> Iterator[tuple[int, list[str]]]:
    """Yield each line with the number of its first line in the file: a quoted cell may contain line breaks."""
    start = first
    try:
        for cells in reader:
            if any(cell.strip() for cell in cells):
                yield first, cells
            first = reader.line_num + start  # type: ignore[attr-defined]
    except csv.Error as error:
        raise InvalidFile(first, N_("the line cannot be read as CSV: %(why)s"), why=error) from error


def _find_delimiter(text: str) -> str:
    header = re.split(r"[\r\n]", text.lstrip(), maxsplit=1)[0]
    return max(DELIMITERS, key=header.count)


def _check_header(number: int, cells: list[str]) -> list[str]:
    columns = [cell.strip().lower() for cell in cells]
    known = {*REQUIRED_COLUMNS, *OPTIONAL_COLUMNS, REGENERATE, *IGNORED_COLUMNS}
    if missing := [name for name in REQUIRED_COLUMNS if name not in columns]:
        raise InvalidFile(
            number,
            N_("the header lacks %(missing)s; it needs %(required)s"),
            missing=", ".join(missing),
            required=", ".join(REQUIRED_COLUMNS),
        )
    if unknown := [name for name in columns if name and name not in known]:
        raise InvalidFile(number, N_("the header has unknown columns: %(columns)s"), columns=", ".join(unknown)[:200])
    if repeated := sorted(name for name, count in Counter(columns).items() if name and count > 1):
        raise InvalidFile(number, N_("the header has %(columns)s twice"), columns=", ".join(repeated))
    return columns


def _name_cells(columns: list[str], cells: list[str]) -> dict[str, str] | tuple[int, int]:
    """Return the cells by column, or the numbers of cells and columns if there are more cells."""
    if any(cell.strip() for cell in cells[len(columns) :]):
        return len(cells), len(columns)
    return {name: cell.strip() for name, cell in zip(columns, cells, strict=False) if name}


def _parse_line(number: int, values: dict[str, str] | tuple[int, int]) -> ImportedLine | LineError:
    if isinstance(values, tuple):
        template = N_("the line has %(cells)s cells, but the header has %(columns)s: quote cells with delimiters")
        return LineError(number, "CSV_INVALID", template, dict(zip(("cells", "columns"), values, strict=True)))
    regenerate = values.get(REGENERATE, "").lower()
    if regenerate not in (*_TRUE, *_FALSE):
        return LineError(number, "CSV_INVALID", N_("regenerate: write yes, or leave it empty"))
    fields = {name: value for name, value in values.items() if name in ArticleRequest.model_fields and value}
    try:
        article = ArticleRequest.model_validate(fields)
    except ValidationError as error:
        wrong = dict.fromkeys(str(each["loc"][0]) for each in error.errors())
        return LineError(number, "CSV_INVALID", describe_mistakes(error), fields=tuple(wrong))
    return ImportedLine(line=number, article=article, regenerate=regenerate in _TRUE)


def describe_mistakes(error: ValidationError) -> str:
    """Describe what is wrong, field by field, without the values."""
    found = error.errors(include_url=False, include_context=False, include_input=False)
    return "; ".join(f"{'.'.join(map(str, each['loc']))}: {each['msg']}" for each in found)
