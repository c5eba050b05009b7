"""Files and folders that only their owner can read."""

from __future__ import annotations

import os
import stat
import tempfile
from contextlib import suppress
from pathlib import Path

_OWNER_ONLY = 0o700
_PASSAGE = 0o711  # as root: the account of the embedded database must be able to traverse the folder, but not list it
_DATABASE = "postgres"  # the only folder of RETOMA_HOME that another account uses


def create_home(home: Path) -> Path:
    """Create RETOMA_HOME for this user only, or remove permissions of others from an existing one and its content."""
    passage = _PASSAGE if os.geteuid() == 0 else _OWNER_ONLY
    home.mkdir(mode=passage, parents=True, exist_ok=True)
    restrict_permissions(home, passage)
    for child in home.iterdir():
        restrict_permissions(child, passage if child.name == _DATABASE else _OWNER_ONLY)
    return home


def create_folder(folder: Path) -> Path:
    """Create a folder for this user only. Its parent must be private: RETOMA_HOME or a folder below it."""
    folder.mkdir(mode=_OWNER_ONLY, parents=True, exist_ok=True)
    restrict_permissions(folder)
    return folder


def restrict_permissions(path: Path, allowed: int = _OWNER_ONLY) -> None:
    """Remove permissions of others, if this user owns the path. Folders shared by design, such as /tmp, stay open.

    Files below a folder that others cannot enter are private, whatever their own mode.
    """
    with suppress(FileNotFoundError):
        found = path.lstat()
        kind = stat.S_IFMT(found.st_mode)
        if found.st_uid != os.geteuid() or kind not in (stat.S_IFDIR, stat.S_IFREG):
            return
        if found.st_mode & stat.S_ISVTX or path == Path(path.anchor):
            return
        mode = stat.S_IMODE(found.st_mode)
        if mode & ~allowed:
            path.chmod(mode & allowed)


def write_file(path: Path, content: str | bytes) -> None:
    """Write a private file atomically."""
    descriptor, new = tempfile.mkstemp(prefix=f".{path.name}-", dir=path.parent)
    with os.fdopen(descriptor, "wb") as file:
        file.write(content.encode() if isinstance(content, str) else content)
    Path(new).replace(path)


def opener(path: str, flags: int) -> int:
    """Create private files with `open(..., opener=private_files.opener)`."""
    return os.open(path, flags, 0o600)
