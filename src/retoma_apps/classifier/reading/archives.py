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
_END_SEARCH = 65_557
_ENTRY = 512  # bytes that a member's entry in the list may have on average
_RATIO_FROM = MEGABYTE
_METHODS = (zipfile.ZIP_STORED, zipfile.ZIP_DEFLATED)
_BROKEN = (
    zipfile.BadZipFile,
    zlib.error,
    lzma.LZMAError,
    EOFError,
    OSError,
    ValueError,
    NotImplementedError,
    struct.error,
)
_NOISE = ("__MACOSX/", ".DS_Store", "Thumbs.db", "desktop.ini")


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
    def is_spent(self) -> bool:
        """Whether more was unpacked than is allowed for the whole."""
        return self._unpacked > self._limits.unpacked

    def chunks(self, info: zipfile.ZipInfo) -> Iterator[bytes]:
        """The member's content, part by part. Raises Unreadable as soon as there is too much of it."""
        _check(info)
        member = 0
        with _told(), self._zipped.open(info) as content:
            while chunk := content.read(_CHUNK):
                member += len(chunk)
                self._count(len(chunk), member, info.compress_size)
                yield chunk

    def _count(self, chunk: int, member: int, packed: int) -> None:
        self._unpacked += chunk
        if self.is_spent:
            raise _too_large(f"unpacked it has more than {self._limits.unpacked:,} bytes")
        if member > _RATIO_FROM and member > self._limits.ratio * max(packed, 1):
            raise _too_large(f"it unpacks to more than {self._limits.ratio} times its size")


@contextmanager
def opened(file: BinaryIO, limits: Limits) -> Iterator[Archive]:
    """A zip, of which so far only the list of members is read."""
    _check_list(file, limits)
    with _told():
        zipped = zipfile.ZipFile(file)
    with zipped:
        if len(zipped.infolist()) > limits.members:
            raise _too_large(f"it holds more than {limits.members:,} files")
        yield Archive(zipped, limits)


def members(file: BinaryIO, limits: Limits) -> Iterator[Member]:
    """Each file of a zip in turn, without folders and what operating systems leave behind.

    A member that is locked, damaged or above `limits.bytes` comes with its error. A zip that is a bomb as a whole ends
    the iteration with one.
    """
    with opened(file, limits) as archive:
        for info in archive.entries:
            if not info.filename.startswith(_NOISE) and not info.filename.endswith(("/", *_NOISE)):
                yield _member(archive, info, limits)


def _member(archive: Archive, info: zipfile.ZipInfo, limits: Limits) -> Member:
    data = bytearray()
    try:
        for chunk in archive.chunks(info):
            data += chunk
            if len(data) > limits.bytes:
                raise _too_large(f"it has more than {limits.bytes:,} bytes")
    except Unreadable as error:
        if archive.is_spent:
            raise
        return Member(info.filename, b"", error)
    return Member(info.filename, bytes(data))


def _check_list(file: BinaryIO, limits: Limits) -> None:
    """Before the list is read: a list alone can fill the memory."""
    size = file.seek(0, 2)
    file.seek(max(0, size - _END_SEARCH))
    tail = file.read()
    at = tail.rfind(_END)
    file.seek(0)
    if at < 0 or len(tail) - at < 16:
        raise Unreadable("the zip is damaged: it has no end", "FILE_DAMAGED")
    (length,) = struct.unpack_from("<I", tail, at + 12)
    if length > limits.members * _ENTRY:
        raise _too_large(f"it holds more than {limits.members:,} files")


def _check(info: zipfile.ZipInfo) -> None:
    if info.flag_bits & 1:
        raise Unreadable("the zip is locked with a password: send it without one", "FILE_ENCRYPTED")
    if info.compress_type not in _METHODS:
        raise Unreadable("the zip is packed in a way that is not read here: pack it with deflate", "FILE_UNSUPPORTED")


@contextmanager
def _told() -> Iterator[None]:
    try:
        yield
    except _BROKEN as error:
        raise Unreadable("the zip is damaged", "FILE_DAMAGED") from error


def _too_large(why: str) -> Unreadable:
    return Unreadable(f"the archive is too large: {why}", "FILE_TOO_LARGE")
