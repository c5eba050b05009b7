"""Untrusted documents: the text of the good ones, and the error code of each bad one."""

from __future__ import annotations

import os
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from retoma_apps.classifier.steps.reading import Limits, Unreadable, ocr, read, read_path
from tests.apps.classifier import documents


@pytest.fixture(autouse=True)
def no_installed_ocr(monkeypatch: pytest.MonkeyPatch) -> None:
    """Make the tests independent of what is installed."""
    monkeypatch.setattr("retoma_apps.classifier.steps.reading.document.installed_ocr", lambda: None)


def code_of(data: bytes, limits: Limits | None = None, ocr: Any = None) -> str:
    with pytest.raises(Unreadable) as raised:
        read(data, limits or Limits(), ocr)
    return raised.value.code


@pytest.mark.parametrize("label", documents.LABELS)
def test_a_portuguese_pdf_is_read_with_all_its_accents(label: str) -> None:
    lines = documents.text_of(label, 7)
    reading = read(documents.pdf([lines]))
    assert reading.text.splitlines() == lines
    assert (reading.kind, reading.pages, reading.is_truncated) == ("pdf", 1, False)


def test_pages_are_read_in_order_and_kept_separate() -> None:
    reading = read(documents.pdf([["primeira"], ["segunda (página)"], []]))
    assert (reading.text, reading.pages) == ("primeira\n\nsegunda (página)", 3)


def test_a_pdf_may_have_some_bytes_before_its_header() -> None:
    assert read(b"\n\n" + documents.letter(2)[1]).text.startswith("SENTENÇA")


def test_reading_stops_once_there_is_enough_text() -> None:
    reading = read(documents.pdf([["x" * 60]] * 30), Limits(characters=100))
    assert len(reading.text) == 100
    assert (reading.pages, reading.is_truncated) == (30, True)


@pytest.mark.parametrize("name", documents.corrupt_pdfs())
def test_a_corrupt_pdf_is_reported_as_damaged(name: str) -> None:
    assert code_of(documents.corrupt_pdfs()[name]) == "FILE_DAMAGED"


def test_a_pdf_that_needs_a_password_is_reported_as_encrypted() -> None:
    assert code_of(documents.pdf([["segredo"]], password="1234")) == "FILE_ENCRYPTED"


@pytest.mark.parametrize("name", documents.corrupt_pdfs())
def test_a_corrupt_pdf_is_not_mistaken_for_an_encrypted_one_that_was_read_before(name: str) -> None:
    code_of(documents.pdf([["segredo"]], password="1234"))
    assert code_of(documents.corrupt_pdfs()[name]) == "FILE_DAMAGED"


def test_an_encrypted_pdf_without_a_password_is_read() -> None:
    assert read(documents.pdf([["aberto"]], password="")).text == "aberto"


def test_a_pdf_of_too_many_pages_is_too_large() -> None:
    assert code_of(documents.pdf([["x"]] * 4), Limits(pages=3)) == "FILE_TOO_LARGE"


def test_a_blank_pdf_is_empty_and_a_scanned_one_needs_ocr() -> None:
    assert code_of(documents.blank_pdf()) == "FILE_EMPTY"
    assert code_of(documents.scanned_pdf()) == "FILE_NEEDS_OCR"


def test_scanned_pages_are_read_by_ocr_up_to_a_limit() -> None:
    seen: list[tuple[int, ...]] = []
    reading = read(documents.scanned_pdf(5), Limits(ocr_pages=3), sees("ofício", seen))
    assert (reading.text, reading.ocr_pages, reading.is_truncated) == ("ofício\n\nofício\n\nofício", 3, True)
    assert seen == [(2339, 1653, 3)] * 3


def test_a_page_is_never_rendered_larger_than_the_pixel_limit() -> None:
    seen: list[tuple[int, ...]] = []
    huge = documents.scanned_pdf().replace(b"[0 0 595 842]", b"[0 0 9000 9000]")
    read(huge, Limits(pixels=10_000), sees("x", seen))
    [(height, width, _)] = seen
    assert height * width <= 10_200


def test_a_page_with_text_is_not_sent_to_ocr() -> None:
    seen: list[tuple[int, ...]] = []
    assert read(documents.letter(1)[1], ocr=sees("x", seen)).ocr_pages == 0
    assert seen == []


def test_ocr_is_not_loaded_for_a_document_that_does_not_need_it(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("retoma_apps.classifier.steps.reading.document.installed_ocr", pytest.fail)
    assert read(documents.letter(2)[1]).text.startswith("SENTENÇA")
    assert read(b"plain words").text == "plain words"


def test_ocr_that_finds_no_text_leaves_the_document_empty() -> None:
    assert code_of(documents.scanned_pdf(), ocr=sees("")) == "FILE_EMPTY"


def test_an_image_is_read_by_ocr_and_without_ocr_the_error_names_what_to_install() -> None:
    seen: list[tuple[int, ...]] = []
    reading = read(documents.png(40, 20), ocr=sees("procuração", seen))
    assert (reading.text, reading.kind, seen) == ("procuração", "image", [(20, 40, 3)])
    with pytest.raises(Unreadable, match=r"retoma\[ocr\]") as raised:
        read(documents.png())
    assert raised.value.code == "FILE_NEEDS_OCR"


def test_an_image_with_too_many_pixels_is_not_decoded() -> None:
    seen: list[tuple[int, ...]] = []
    assert code_of(documents.png(7_000, 7_000), ocr=sees("x", seen)) == "FILE_TOO_LARGE"
    assert code_of(documents.png(20_000, 20_000), ocr=sees("x", seen)) == "FILE_TOO_LARGE"
    assert seen == []


@pytest.mark.parametrize("data", [documents.png()[:30], b"\xff\xd8\xff\xe0", b"GIF89a", b"II*\0", b"BM" + b"\1" * 40])
def test_a_broken_image_is_reported_as_damaged(data: bytes) -> None:
    assert code_of(data, ocr=sees("x")) == "FILE_DAMAGED"


def test_the_text_of_a_docx_is_its_paragraphs() -> None:
    reading = read(documents.docx(["Ofício nº 3", "Senhor Secretário, <urgente> & só"]))
    assert (reading.text, reading.kind) == ("Ofício nº 3\nSenhor Secretário, <urgente> & só", "docx")


def test_the_text_of_a_docx_has_tabs_and_breaks_but_no_deleted_text_or_fields() -> None:
    body = (
        "<w:p><w:r><w:t>a</w:t><w:tab/><w:t>b</w:t><w:br/><w:t>c</w:t></w:r>"
        "<w:del><w:r><w:delText>gone</w:delText></w:r></w:del><w:r><w:instrText>PAGE</w:instrText></w:r></w:p>"
        '<x:t xmlns:x="urn:other">other</x:t>'
    )
    assert read(documents.docx([], document=documents.document_xml(body))).text == "a b\nc"


def test_a_long_docx_is_read_up_to_the_limit() -> None:
    reading = read(documents.docx(["palavra " * 50] * 50), Limits(characters=500))
    assert (len(reading.text) <= 500, reading.is_truncated) == (True, True)


@pytest.mark.parametrize("made", [documents.entity_bomb_docx, documents.external_entity_docx])
def test_a_docx_with_xml_entities_is_rejected_before_any_is_expanded(made: Callable[[], bytes]) -> None:
    with pytest.raises(Unreadable, match="document type") as raised:
        read(made())
    assert raised.value.code == "FILE_DAMAGED"


@pytest.mark.parametrize(
    ("body", "code"),
    [
        (b"<w><p></w>", "FILE_DAMAGED"),
        (b"", "FILE_DAMAGED"),
        (b"\0\1\2", "FILE_DAMAGED"),
        (b"<a>" * 300 + b"</a>" * 300, "FILE_DAMAGED"),
        (documents.document_xml(""), "FILE_EMPTY"),
    ],
)
def test_a_docx_with_invalid_xml_is_reported_as_damaged(body: bytes, code: str) -> None:
    assert code_of(documents.docx([], document=body)) == code


def test_a_docx_bomb_is_too_large_by_its_ratio_and_by_its_size() -> None:
    bomb = documents.bomb_docx(20)
    assert code_of(bomb) == "FILE_TOO_LARGE"
    assert code_of(bomb, Limits(ratio=10**9, unpacked=5_000_000)) == "FILE_TOO_LARGE"


def test_other_encrypted_and_truncated_docx_files_have_different_errors() -> None:
    assert code_of(documents.zipped({"a.txt": b"x"})) == "FILE_UNSUPPORTED"
    assert code_of(documents.locked_zip({"word/document.xml": b"<w/>"})) == "FILE_ENCRYPTED"
    assert code_of(documents.docx(["x"])[:-30]) == "FILE_DAMAGED"
    assert code_of(documents.docx(["x"])[:60]) == "FILE_DAMAGED"


TEXT = "Petição: ação de execução, “à vista”.\r\nSegunda linha"
CLEAN = TEXT.replace("\r\n", "\n")


@pytest.mark.parametrize("encoding", ["utf-8", "utf-8-sig", "utf-16", "utf-16-le", "utf-16-be", "utf-32", "cp1252"])
def test_the_encoding_of_plain_text_is_detected(encoding: str) -> None:
    reading = read(TEXT.encode(encoding))
    assert (reading.text, reading.kind) == (CLEAN, "text")


def test_latin_1_text_with_bytes_that_windows_1252_lacks_is_still_read() -> None:
    assert "ação" in read("ação\x81".encode("latin-1")).text


def test_text_is_stripped_of_characters_that_cannot_be_stored() -> None:
    assert read("a\0b \t c\n\n\n\n\nd e\u0301 ".encode() + b"plain words " * 20).text.startswith("ab c\n\nd é plain")


@pytest.mark.parametrize("data", [b"", b" \n\t\r\n", b"\0\0\0\0"])
def test_a_file_without_content_is_reported_as_empty(data: bytes) -> None:
    assert code_of(data) == "FILE_EMPTY"


def test_a_file_of_too_many_bytes_is_too_large() -> None:
    assert code_of(b"x" * 101, Limits(bytes=100)) == "FILE_TOO_LARGE"


OLE = b"\xd0\xcf\x11\xe0\xa1\xb1\x1a\xe1" + bytes(500)


@pytest.mark.parametrize(
    ("data", "code"),
    [
        (OLE, "FILE_UNSUPPORTED"),
        (OLE + "EncryptedPackage".encode("utf-16-le"), "FILE_ENCRYPTED"),
        (b"{\\rtf1 ol\\'e1}", "FILE_UNSUPPORTED"),
        (b"\x7fELF" + bytes(range(256)), "FILE_UNSUPPORTED"),
        (bytes(range(1, 32)) * 10, "FILE_UNSUPPORTED"),
        (b"\x1f\x8b\x08\0\0", "FILE_UNSUPPORTED"),
    ],
)
def test_an_unsupported_format_is_reported_as_such(data: bytes, code: str) -> None:
    assert code_of(data) == code


def test_an_error_quotes_nothing_of_the_document() -> None:
    secret = b"CANARY-31415"
    for data in (b"%PDF-1.7 " + secret, documents.docx([], document=b"<" + secret), b"GIF89a" + secret):
        with pytest.raises(Unreadable) as raised:
            read(data, ocr=sees("x"))
        assert "CANARY" not in str(raised.value)


def test_a_file_is_read_by_its_path_but_links_folders_and_pipes_are_not(tmp_path: Path) -> None:
    file, link, pipe = tmp_path / "a", tmp_path / "b", tmp_path / "c"
    file.write_bytes(documents.letter(2)[1])
    assert read_path(str(file)).text.startswith("SENTENÇA")
    link.symlink_to(file)
    os.mkfifo(pipe)
    with pytest.raises(OSError, match="symbolic links"):
        read_path(str(link))
    for odd in (pipe, tmp_path):
        with pytest.raises(Unreadable) as raised:
            read_path(str(odd))
        assert raised.value.code == "FILE_UNSUPPORTED"


def test_a_large_file_is_rejected_before_it_is_read(tmp_path: Path) -> None:
    with (tmp_path / "sparse").open("wb") as file:
        file.truncate(200 << 30)
    with pytest.raises(Unreadable) as raised:
        read_path(str(tmp_path / "sparse"))
    assert raised.value.code == "FILE_TOO_LARGE"


def test_ocr_is_available_only_if_the_extra_is_installed(monkeypatch: pytest.MonkeyPatch) -> None:
    made = ocr.installed_ocr.__wrapped__
    monkeypatch.setitem(sys.modules, "rapidocr", None)
    assert made() is None
    monkeypatch.setitem(sys.modules, "rapidocr", FakeRapidOcr)
    engine = made()
    assert engine is not None
    assert (engine("page"), engine("blank")) == ("read\npage", "")


class FakeRapidOcr:
    """Behaves as the library's class: no text is None."""

    def __init__(self, params: dict[str, Any] | None = None) -> None: ...

    def __call__(self, picture: str) -> Any:
        return type("Output", (), {"txts": ("read", picture) if picture != "blank" else None})

    RapidOCR: Any


FakeRapidOcr.RapidOCR = FakeRapidOcr


def sees(text: str, seen: list[tuple[int, ...]] | None = None) -> Callable[[Any], str]:
    """Return an OCR function that always reads the same text and records the shape of each picture."""

    def look(picture: Any) -> str:
        if seen is not None:
            seen.append(picture.shape)
        return text

    return look
