"""Batches in a zip: each file in turn, and bombs are detected."""

from __future__ import annotations

import io
import zipfile

import pytest

from retoma_apps.classifier.steps.reading import Limits, Member, Unreadable, is_one_document, iterate_members
from tests.apps.classifier.documents import false_size_zip, locked_zip, zipped

ZEROS = b"\0" * 3_000_000


def unpack(data: bytes, limits: Limits | None = None) -> list[Member]:
    return list(iterate_members(io.BytesIO(data), limits or Limits()))


def code_of(data: bytes, limits: Limits | None = None) -> str:
    with pytest.raises(Unreadable) as raised:
        unpack(data, limits)
    return raised.value.code


def error_of(data: bytes, limits: Limits) -> str:
    with pytest.raises(Unreadable) as raised:
        unpack(data, limits)
    return str(raised.value)


def test_every_file_is_extracted_except_folders_and_system_leftovers() -> None:
    made = zipped({"a.txt": b"1", "folder/": b"", "folder/ação.pdf": b"2", "__MACOSX/a.txt": b"3", "x/.DS_Store": b"4"})
    assert [(each.name, each.data) for each in unpack(made)] == [("a.txt", b"1"), ("folder/ação.pdf", b"2")]


@pytest.mark.parametrize("left", ["._a.pdf", "x/._a.pdf", "x/__MACOSX/a", "x/Thumbs.db", "Desktop.ini", "x\\", "a/b/"])
def test_operating_system_leftovers_are_not_documents(left: str) -> None:
    assert [each.name for each in unpack(zipped({left: b"1", "my Thumbs.db": b"2"}))] == ["my Thumbs.db"]


def test_only_documents_count_towards_the_file_limit() -> None:
    limits = Limits(members=10, files=2)
    twins = {"lote/": b"", "lote/a": b"1", "__MACOSX/lote/._a": b"", "lote/b": b"2", "__MACOSX/lote/._b": b""}
    assert [each.data for each in unpack(zipped(twins), limits)] == [b"1", b"2"]
    assert "more than 2 files" in error_of(zipped({**twins, "c": b"3"}), limits)
    assert "more than 2 files" in error_of(zipped({f"{number}": b"" for number in range(11)}), limits)


@pytest.mark.parametrize("encoding", ["cp850", "utf-8"])
def test_a_name_without_a_declared_encoding_is_decoded_with_the_brazilian_code_page(encoding: str) -> None:
    name = "petição nº 1 São João.txt"
    written = name.encode(encoding)
    made = zipped({"n" * len(written): b"1"}).replace(b"n" * len(written), written)
    assert [each.name for each in unpack(made)] == [name]


@pytest.mark.parametrize(
    ("names", "is_one"),
    [
        (["word/document.xml", "[Content_Types].xml"], True),
        (["mimetype", "content.xml"], True),
        (["a.docx", "b.docx"], False),
        (["lote/[Content_Types].xml", "lote/mimetype"], False),
    ],
)
def test_a_zip_is_one_document_if_its_directory_says_so(names: list[str], is_one: bool) -> None:
    assert is_one_document(io.BytesIO(zipped(dict.fromkeys(names, b"1"))), Limits()) is is_one


def test_two_members_with_the_same_name_are_both_extracted() -> None:
    made = zipped({"one.txt": b"1", "two.txt": b"2"}).replace(b"two.txt", b"one.txt")
    assert [(each.name, each.data) for each in unpack(made)] == [("one.txt", b"1"), ("one.txt", b"2")]


def test_a_member_may_have_no_name() -> None:
    made = zipped({"one.txt": b"1"}).replace(b"one.txt", b"\0ne.txt")
    assert [(each.name, each.data) for each in unpack(made)] == [("", b"1")]


def test_a_member_that_is_a_bomb_or_too_large_fails_alone() -> None:
    made = zipped({"good": b"1", "bomb": ZEROS, "long": bytes(range(256)) * 8, "last": b"2"})
    outcomes = {each.name: each.error.code if each.error else each.data for each in unpack(made, Limits(bytes=2_000))}
    assert outcomes == {"good": b"1", "bomb": "FILE_TOO_LARGE", "long": "FILE_TOO_LARGE", "last": b"2"}


def test_a_zip_bomb_is_not_unpacked_beyond_the_ratio_limit() -> None:
    [member] = unpack(zipped({"bomb": ZEROS}))
    assert member.error is not None
    assert "200 times" in str(member.error)


def test_members_that_are_too_large_together_reject_the_whole_archive() -> None:
    made = zipped({str(number): b"%d" % number * 300 for number in range(20)})
    assert code_of(made, Limits(unpacked=2_000)) == "FILE_TOO_LARGE"


def test_small_members_that_form_a_bomb_together_are_rejected_before_any_is_extracted() -> None:
    made = zipped({f"{number}.txt": b"%d" % number + b"\0" * 900_000 for number in range(5)})
    with pytest.raises(Unreadable, match="200 times its size"):
        next(iterate_members(io.BytesIO(made), Limits()))


def test_too_many_members_are_rejected_before_the_directory_is_read(monkeypatch: pytest.MonkeyPatch) -> None:
    made = zipped({f"{number:04}": b"" for number in range(300)})
    assert code_of(made, Limits(members=299)) == "FILE_TOO_LARGE"
    monkeypatch.setattr(zipfile, "ZipFile", None)
    assert code_of(made, Limits(members=10)) == "FILE_TOO_LARGE"


def test_a_zip_with_false_sizes_yields_no_more_than_declared() -> None:
    [member] = unpack(false_size_zip({"liar": ZEROS}))
    assert (member.data, member.error and member.error.code) == (b"", "FILE_DAMAGED")


def test_an_encrypted_member_is_reported_as_encrypted() -> None:
    [member] = unpack(locked_zip({"a": b"1"}))
    assert member.error is not None
    assert member.error.code == "FILE_ENCRYPTED"


def test_a_compression_method_that_needs_much_memory_is_not_read() -> None:
    made = io.BytesIO()
    with zipfile.ZipFile(made, "w", zipfile.ZIP_LZMA) as archive:
        archive.writestr("a", b"1")
    [member] = unpack(made.getvalue())
    assert member.error is not None
    assert member.error.code == "FILE_UNSUPPORTED"


@pytest.mark.parametrize(
    "data",
    [b"", b"PK", b"PK\x03\x04" * 50, zipped({"a": b"1"})[:-5], b"PK\x05\x06" + b"\1" * 18],
    ids=["empty", "two letters", "only heads", "cut", "only an end"],
)
def test_a_file_that_is_not_a_zip_is_reported_as_damaged(data: bytes) -> None:
    assert code_of(data) in ("FILE_DAMAGED", "FILE_TOO_LARGE")


def test_noise_within_a_zip_damages_one_member() -> None:
    made = bytearray(zipped({"a": b"first words " * 50, "b": b"second"}))
    made[40:50] = b"\xff" * 10
    outcomes = {each.name: each.error.code if each.error else each.data for each in unpack(bytes(made))}
    assert outcomes == {"a": "FILE_DAMAGED", "b": b"second"}
