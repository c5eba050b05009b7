"""Files and folders that only their owner may read."""

from __future__ import annotations

import os
import stat
import tempfile
from contextlib import suppress
from pathlib import Path

_OWNER_ONLY = 0o700
_PASSAGE = 0o711  # as root, the embedded database's account must pass through; nothing can be listed
_DATABASE = "postgres"  # the only folder of RETOMA_HOME that another account uses


def create_home(home: Path) -> Path:
    """Create RETOMA_HOME for this user alone, or close one that others could read, with everything directly in it."""
    passage = _PASSAGE if os.geteuid() == 0 else _OWNER_ONLY
    if home.is_dir():
        restrict_permissions(home, passage)
        for child in home.iterdir():
            restrict_permissions(child, passage if child.name == _DATABASE else _OWNER_ONLY)
        return home
    home.mkdir(mode=passage, parents=True, exist_ok=True)
    return home


def create_folder(folder: Path) -> Path:
    """Create a folder below RETOMA_HOME, which must be private itself, for this user alone."""
    folder.mkdir(mode=_OWNER_ONLY, parents=True, exist_ok=True)
    restrict_permissions(folder)
    return folder


def restrict_permissions(path: Path, allowed: int = _OWNER_ONLY) -> None:
    """Take all rights of others away, if the path is ours. A folder that is shared by design, as /tmp, stays open.

    What is below a folder that others cannot enter is closed to them, whatever its own mode.
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


def write_file(path: Path, text: str) -> None:
    """Write a private file, all or nothing."""
    descriptor, new = tempfile.mkstemp(prefix=f".{path.name}-", dir=path.parent)
    with os.fdopen(descriptor, "w") as file:
        file.write(text)
    Path(new).replace(path)


def opener(path: str, flags: int) -> int:
    """Let `open(..., opener=private.opener)` create a private file."""
    return os.open(path, flags, 0o600)
