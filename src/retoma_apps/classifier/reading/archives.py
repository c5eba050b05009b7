"""Zip files of strangers: counted while they are unpacked, since what they say of themselves may be a lie."""

from __future__ import annotations

import lzma
import struct
import zipfile
import zlib
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import BinaryIO

from retoma_apps.classifier.reading.errors import Unreadable
from retoma_apps.classifier.reading.limits import MEGABYTE, Limits

_CHUNK = 65_536
_END = b"PK\x05\x06"
_END_SEARCH_BYTES = 65_557
_MAX_ENTRY_BYTES = 512  # bytes that a member's entry in the list may have on average
_RATIO_FROM = MEGABYTE
_METHODS = (zipfile.ZIP_STORED, zipfile.ZIP_DEFLATED)
_ZIP_ERRORS = (
    zipfile.BadZipFile,
    zlib.error,
    lzma.LZMAError,
    EOFError,
    OSError,
    ValueError,
    NotImplementedError,
    struct.error,
)
_SYSTEM_FILES = (".ds_store", "thumbs.db", "desktop.ini")
_MAC_METADATA_FOLDER = "__MACOSX"
_MAC_METADATA_PREFIX = "._"
_IS_UTF8 = 0x800
_OFFICE_MARKERS = ("[Content_Types].xml", "mimetype")  # at the root of an Office or OpenDocument file


@dataclass(frozen=True)
class Member:
    """`name` is a label and never a path. If `error` is set, `data` is empty: this member fails, and no other."""

    name: str
    data: bytes
    error: Unreadable | None = None


class Archive:
    def __init__(self, zipped: zipfile.ZipFile, limits: Limits) -> None:
        self._zipped = zipped
        self._limits = limits
        self._unpacked = 0

    @property
    def entries(self) -> list[zipfile.ZipInfo]:
        """As listed: two members may have the same name."""
        return self._zipped.infolist()

    @property
    def is_over_limit(self) -> bool:
        """Whether more was unpacked than is allowed for the whole."""
        return self._unpacked > self._limits.unpacked

    def chunks(self, info: zipfile.ZipInfo) -> Iterator[bytes]:
        """The member's content, part by part. Raises Unreadable as soon as there is too much of it."""
        _check(info)
        member = 0
        with _translate_errors(), self._zipped.open(info) as content:
            while chunk := content.read(_CHUNK):
                member += len(chunk)
                self._count(len(chunk), member, info.compress_size)
                yield chunk

    def _count(self, chunk: int, member: int, packed: int) -> None:
        self._unpacked += chunk
        if self.is_over_limit:
            raise _too_large(f"unpacked it has more than {self._limits.unpacked:,} bytes")
        if _is_bomb(member, packed, self._limits):
            raise _above_ratio(self._limits)


@contextmanager
def open_archive(file: BinaryIO, limits: Limits) -> Iterator[Archive]:
    """A zip, of which so far only the list of members is read."""
    _check_list(file, limits)
    with _translate_errors():
        zipped = zipfile.ZipFile(file)
    with zipped:
        if len(zipped.infolist()) > limits.members:
            raise _too_many(limits)
        yield Archive(zipped, limits)


def is_one_document(file: BinaryIO, limits: Limits) -> bool:
    """Whether a zip is a document of an office program, and no batch of documents. By its list, which is at its end."""
    with open_archive(file, limits) as archive:
        return any(info.filename in _OFFICE_MARKERS for info in archive.entries)


def iterate_members(file: BinaryIO, limits: Limits) -> Iterator[Member]:
    """Each file of a zip in turn, without folders and what operating systems leave behind.

    A member that is locked, damaged or above `limits.bytes` comes with its error. A zip that is a bomb as a whole ends
    the iteration with one.
    """
    with open_archive(file, limits) as archive:
        found = [(info, name) for info in archive.entries if not _is_system_file(name := _decode_name(info))]
        if len(found) > limits.files:
            raise _too_many(limits)
        packed = min(file.seek(0, 2), sum(info.compress_size for info, _ in found))
        announced = [info.file_size for info, _ in found if not _is_bomb(info.file_size, info.compress_size, limits)]
        _check_total(sum(announced), packed, limits)
        kept = 0
        for info, name in found:
            member = _read_member(archive, info, name, limits)
            kept += len(member.data)
            _check_total(kept, packed, limits)
            yield member


def _check_total(unpacked: int, packed: int, limits: Limits) -> None:
    """Many small members may be a bomb together. A member that is one by itself has failed alone and does not count."""
    if _is_bomb(unpacked, packed, limits):
        raise _above_ratio(limits)


def _is_bomb(unpacked: int, packed: int, limits: Limits) -> bool:
    return unpacked > _RATIO_FROM and unpacked > limits.ratio * max(packed, 1)


def _decode_name(info: zipfile.ZipInfo) -> str:
    """As it was meant: zips of Windows in Brazil have names in code page 850 and do not say so; some have UTF-8."""
    if info.flag_bits & _IS_UTF8:
        return info.filename
    try:
        written = info.filename.encode("cp437")  # as which it was read
    except UnicodeEncodeError:
        return info.filename
    try:
        return written.decode()
    except UnicodeDecodeError:
        return written.decode("cp850")


def _is_system_file(name: str) -> bool:
    """Folders, and what operating systems leave behind."""
    *folders, last = name.replace("\\", "/").split("/")
    is_folder = bool(folders) and not last
    return (
        is_folder
        or _MAC_METADATA_FOLDER in folders
        or last.startswith(_MAC_METADATA_PREFIX)
        or last.casefold() in _SYSTEM_FILES
    )


def _read_member(archive: Archive, info: zipfile.ZipInfo, name: str, limits: Limits) -> Member:
    data = bytearray()
    try:
        for chunk in archive.chunks(info):
            data += chunk
            if len(data) > limits.bytes:
                raise _too_large(f"it has more than {limits.bytes:,} bytes")
    except Unreadable as error:
        if archive.is_over_limit:
            raise
        return Member(name, b"", error)
    return Member(name, bytes(data))


def _check_list(file: BinaryIO, limits: Limits) -> None:
    """Before the list is read: a list alone can fill the memory."""
    size = file.seek(0, 2)
    file.seek(max(0, size - _END_SEARCH_BYTES))
    tail = file.read()
    at = tail.rfind(_END)
    file.seek(0)
    if at < 0 or len(tail) - at < 16:
        raise Unreadable("the zip is damaged: it has no end", "FILE_DAMAGED")
    (length,) = struct.unpack_from("<I", tail, at + 12)
    if length > limits.members * _MAX_ENTRY_BYTES:
        raise _too_many(limits)


def _check(info: zipfile.ZipInfo) -> None:
    if info.flag_bits & 1:
        raise Unreadable("the zip is locked with a password: send it without one", "FILE_ENCRYPTED")
    if info.compress_type not in _METHODS:
        raise Unreadable("the zip is packed in a way that is not read here: pack it with deflate", "FILE_UNSUPPORTED")


@contextmanager
def _translate_errors() -> Iterator[None]:
    try:
        yield
    except _ZIP_ERRORS as error:
        raise Unreadable("the zip is damaged", "FILE_DAMAGED") from error


def _too_many(limits: Limits) -> Unreadable:
    return _too_large(f"it holds more than {min(limits.files, limits.members):,} files")


def _above_ratio(limits: Limits) -> Unreadable:
    return _too_large(f"it unpacks to more than {limits.ratio} times its size")


def _too_large(why: str) -> Unreadable:
    return Unreadable(f"the archive is too large: {why}", "FILE_TOO_LARGE")
