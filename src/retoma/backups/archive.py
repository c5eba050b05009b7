"""A backup on disk: one folder, or one `.tar` file. Both have the same parts under the same names.

A backup is written under another name, and gets its own once it is complete and on disk. When it is read, no name in it
becomes a path: its parts have fixed names, and the keys of files are checked.
"""

from __future__ import annotations

import io
import os
import re
import shutil
import stat
import tarfile
from abc import ABC, abstractmethod
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager, contextmanager, suppress
from hashlib import sha256
from pathlib import Path
from typing import IO
from uuid import uuid4

from retoma import private_files
from retoma.backups.manifest import FILES, MANIFEST, MAX_BYTES, Manifest, Part, parse_manifest
from retoma.errors import BackupFailed, Conflict

_NAME = re.compile(r"manifest\.json|database\.dump|files\.jsonl|files/[0-9a-f]{64}")
CHUNK = 1 << 20


class HashingFile:
    """A private file that is being written, with the size and the SHA-256 of its content."""

    def __init__(self, file: IO[bytes]) -> None:
        self._file, self._digest, self._size = file, sha256(), 0

    @classmethod
    @contextmanager
    def create(cls, path: Path) -> Iterator[HashingFile]:
        with open(path, "wb", opener=private_files.opener) as file:
            yield cls(file)

    def write(self, chunk: bytes) -> None:
        self._file.write(chunk)
        self._digest.update(chunk)
        self._size += len(chunk)

    @property
    def part(self) -> Part:
        return Part(size=self._size, sha256=self._digest.hexdigest())


class ArchiveWriter(ABC):
    """A backup that is being written. `folder` is a private place for temporary files on the same disk."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder

    def close(self) -> None:
        """Close what is open, whether the backup is complete or not."""
        return

    @abstractmethod
    def add(self, name: str, path: Path) -> None:
        """Add a part, and remove the file `path`."""

    @abstractmethod
    def finish(self) -> Path:
        """Write everything to disk, and return the path of the backup under its temporary name."""


class FolderWriter(ArchiveWriter):
    def __init__(self, folder: Path) -> None:
        super().__init__(folder)
        self._backup = folder / "backup"
        for each in (self._backup, self._backup / FILES):
            each.mkdir(mode=0o700)

    def add(self, name: str, path: Path) -> None:
        _sync(path)
        path.replace(self._backup / name)

    def finish(self) -> Path:
        for folder in (self._backup / FILES, self._backup):
            _sync(folder)
        return self._backup


class TarWriter(ArchiveWriter):
    def __init__(self, folder: Path) -> None:
        super().__init__(folder)
        self._path = folder / "backup.tar"
        self._file = open(self._path, "xb", opener=private_files.opener)  # noqa: SIM115
        self._tar = tarfile.open(fileobj=self._file, mode="w", format=tarfile.PAX_FORMAT)  # noqa: SIM115

    def add(self, name: str, path: Path) -> None:
        member = tarfile.TarInfo(name)
        member.size, member.mode = path.stat().st_size, 0o600
        with path.open("rb") as part:
            self._tar.addfile(member, part)
        path.unlink()

    def close(self) -> None:
        with suppress(OSError):  # after a failed write, it tries to write the rest again
            self._file.close()

    def finish(self) -> Path:
        self._tar.close()
        self._file.flush()
        os.fsync(self._file.fileno())
        self._file.close()
        return self._path


@asynccontextmanager
async def write_archive(to: Path) -> AsyncIterator[ArchiveWriter]:
    """Yield a writer. The backup appears under its name if the block ends without an error; otherwise nothing is left.

    A name that ends in `.tar` is a file, any other a folder. Raise Conflict if it exists.
    """
    refuse_existing(to)
    folder = to.parent / f".{to.name}.unfinished-{uuid4().hex[:8]}"
    try:
        folder.mkdir(mode=0o700)
    except OSError as error:
        raise BackupFailed(f"cannot write to {to.parent}: {error.strerror}") from error
    writer: ArchiveWriter | None = None
    try:
        writer = TarWriter(folder) if to.suffix == ".tar" else FolderWriter(folder)
        yield writer
        written = writer.finish()
        refuse_existing(to)
        written.rename(to)
        _sync(to.parent)
    except OSError as error:
        raise BackupFailed(f"cannot write the backup {to}: {error}") from error
    finally:
        if writer is not None:
            writer.close()
        shutil.rmtree(folder, ignore_errors=True)


def refuse_existing(to: Path) -> None:
    if os.path.lexists(to):
        raise Conflict(f"{to} exists: a backup never replaces anything, choose another name")


class BackupArchive(ABC):
    """A backup that is being read."""

    @abstractmethod
    def open(self, name: str) -> IO[bytes]:
        """Open a part. Raise BackupFailed if the backup has none of this name."""

    def read_manifest(self) -> Manifest:
        with self.open(MANIFEST) as file:
            text = file.read(MAX_BYTES + 1)
        if len(text) > MAX_BYTES:
            raise BackupFailed(f"{MANIFEST} is too large for one of a backup")
        return parse_manifest(text)

    @contextmanager
    def open_checked(self, name: str, expected: Part) -> Iterator[IO[bytes]]:
        """Open a part, and check at the end of the block that it was read completely and is unchanged."""
        with self.open(name) as raw:
            checked = _CheckedReader(raw)
            yield io.BufferedReader(checked, CHUNK)
            checked.drain()
        if checked.part != expected:
            raise BackupFailed(
                f"{name} is damaged: it has {checked.part.size:,} bytes with the SHA-256 {checked.part.sha256}, not "
                f"{expected.size:,} with {expected.sha256}"
            )


class FolderArchive(BackupArchive):
    def __init__(self, folder: Path) -> None:
        self._folder = folder

    def open(self, name: str) -> IO[bytes]:
        assert _NAME.fullmatch(name)
        path = self._folder / name
        try:
            # A link could lead to any file of this machine.
            if not stat.S_ISDIR(path.parent.lstat().st_mode):
                raise BackupFailed(f"{path.parent} is a link")
            descriptor = os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK)
        except OSError as error:
            raise BackupFailed(f"the backup has no readable file {name}: {error.strerror}") from error
        file = os.fdopen(descriptor, "rb")
        if not stat.S_ISREG(os.fstat(descriptor).st_mode):
            file.close()
            raise BackupFailed(f"{name} is not a file")
        return file


class TarArchive(BackupArchive):
    """Reads members one by one: nothing is ever extracted to a path that the archive names."""

    def __init__(self, tar: tarfile.TarFile) -> None:
        self._tar = tar
        self._members: dict[str, tarfile.TarInfo] = {}
        for member in tar:
            if not member.isreg() or not _NAME.fullmatch(member.name) or member.name in self._members:
                raise BackupFailed(f"{member.name[:80]!r} does not belong into a backup")
            self._members[member.name] = member

    def open(self, name: str) -> IO[bytes]:
        member = self._members.get(name)
        file = None if member is None else self._tar.extractfile(member)
        if file is None:
            raise BackupFailed(f"the backup has no file {name}")
        return file


@contextmanager
def open_archive(path: Path) -> Iterator[BackupArchive]:
    """Open a backup. Raise BackupFailed if there is none."""
    if path.is_dir():
        yield FolderArchive(path)
        return
    try:
        tar = tarfile.open(path, "r:")  # noqa: SIM115
    except (OSError, tarfile.TarError) as error:
        raise BackupFailed(f"{path} is not a backup: {error}") from error
    with tar:
        try:
            yield TarArchive(tar)
        except tarfile.TarError as error:
            raise BackupFailed(f"{path} is damaged: {error}") from error


class _CheckedReader(io.RawIOBase):
    def __init__(self, file: IO[bytes]) -> None:
        self._file, self._digest, self._size = file, sha256(), 0

    def readable(self) -> bool:
        return True

    def readinto(self, buffer: bytearray | memoryview) -> int:  # type: ignore[override]
        chunk = self._file.read(len(buffer))
        buffer[: len(chunk)] = chunk
        self._digest.update(chunk)
        self._size += len(chunk)
        return len(chunk)

    def drain(self) -> None:
        """Read what the caller has left."""
        buffer = bytearray(CHUNK)
        while self.readinto(buffer):
            pass

    @property
    def part(self) -> Part:
        return Part(size=self._size, sha256=self._digest.hexdigest())


def _sync(path: Path) -> None:
    with suppress(FileNotFoundError):
        descriptor = os.open(path, os.O_RDONLY)
        try:
            os.fsync(descriptor)
        finally:
            os.close(descriptor)
