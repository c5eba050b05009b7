"""Unpack untrusted zip files. Sizes are counted while unpacking, since the declared ones may be false."""

from __future__ import annotations

import lzma
import struct
import zipfile
import zlib
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import BinaryIO

from retoma_apps.classifier.steps.reading.errors import Unreadable
from retoma_apps.classifier.steps.reading.limits import MEGABYTE, Limits

_CHUNK = 65_536
_END = b"PK\x05\x06"
_END_SEARCH_BYTES = 65_557
_MAX_ENTRY_BYTES = 512  # average size of a member's entry in the central directory
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
    """`name` is a label, never a path. If `error` is set, `data` is empty: only this member fails."""

    name: str
    data: bytes
    error: Unreadable | None = None


class Archive:
    def __init__(self, zipped: zipfile.ZipFile, limits: Limits) -> None:
        self._zipped = zipped
        self.entries = zipped.infolist()
        """As listed: two members may have the same name."""
        self._limits = limits
        self._unpacked = 0

    @property
    def is_over_limit(self) -> bool:
        """Whether more was unpacked than the whole archive may contain."""
        return self._unpacked > self._limits.unpacked

    def chunks(self, info: zipfile.ZipInfo) -> Iterator[bytes]:
        """Yield the member's content in chunks. Raise Unreadable as soon as it is over a limit."""
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
            raise _too_large(f"its contents have more than {self._limits.unpacked:,} bytes")
        if _is_bomb(member, packed, self._limits):
            raise _above_ratio(self._limits)


@contextmanager
def open_archive(file: BinaryIO, limits: Limits) -> Iterator[Archive]:
    """Open a zip and read only its list of members."""
    _check_list(file, limits)
    with _translate_errors():
        zipped = zipfile.ZipFile(file)
    with zipped:
        if len(zipped.infolist()) > limits.members:
            raise _too_many(limits)
        yield Archive(zipped, limits)


def is_one_document(file: BinaryIO, limits: Limits) -> bool:
    """Return whether a zip is an office document instead of a batch, by its list of members."""
    with open_archive(file, limits) as archive:
        return any(info.filename in _OFFICE_MARKERS for info in archive.entries)


def iterate_members(file: BinaryIO, limits: Limits) -> Iterator[Member]:
    """Yield each file of a zip, without folders and system files.

    A member that is encrypted, damaged or over `limits.bytes` has an error. Raise Unreadable if the zip as a whole is a
    bomb.
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
    """Raise if many small members are a bomb together. A member that is one alone has failed and does not count."""
    if _is_bomb(unpacked, packed, limits):
        raise _above_ratio(limits)


def _is_bomb(unpacked: int, packed: int, limits: Limits) -> bool:
    return unpacked > _RATIO_FROM and unpacked > limits.ratio * max(packed, 1)


def _decode_name(info: zipfile.ZipInfo) -> str:
    """Decode the name: zips made by Windows in Brazil use code page 850 without declaring it; some use UTF-8."""
    if info.flag_bits & _IS_UTF8:
        return info.filename
    try:
        written = info.filename.encode("cp437")  # zipfile decoded it as this
    except UnicodeEncodeError:
        return info.filename
    try:
        return written.decode()
    except UnicodeDecodeError:
        return written.decode("cp850")


def _is_system_file(name: str) -> bool:
    """Return whether this is a folder or a file created by an operating system."""
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
    """Check before parsing: the list of members alone can fill the memory."""
    size = file.seek(0, 2)
    file.seek(max(0, size - _END_SEARCH_BYTES))
    tail = file.read()
    at = tail.rfind(_END)
    file.seek(0)
    if at < 0 or len(tail) - at < 16:
        raise Unreadable("the zip is damaged: its end is missing", "FILE_DAMAGED")
    (length,) = struct.unpack_from("<I", tail, at + 12)
    if length > limits.members * _MAX_ENTRY_BYTES:
        raise _too_many(limits)


def _check(info: zipfile.ZipInfo) -> None:
    if info.flag_bits & 1:
        raise Unreadable("the zip is protected with a password: send it without one", "FILE_ENCRYPTED")
    if info.compress_type not in _METHODS:
        raise Unreadable("the zip's compression method is not supported: use deflate", "FILE_UNSUPPORTED")


@contextmanager
def _translate_errors() -> Iterator[None]:
    try:
        yield
    except _ZIP_ERRORS as error:
        raise Unreadable("the zip is damaged", "FILE_DAMAGED") from error


def _too_many(limits: Limits) -> Unreadable:
    return _too_large(f"it contains more than {min(limits.files, limits.members):,} files")


def _above_ratio(limits: Limits) -> Unreadable:
    return _too_large(f"it unpacks to more than {limits.ratio} times its size")


def _too_large(why: str) -> Unreadable:
    return Unreadable(f"the archive is too large: {why}", "FILE_TOO_LARGE")
