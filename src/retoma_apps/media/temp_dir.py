"""Temporary folders, which are deleted soon after their process has ended, however it ended."""

from __future__ import annotations

import fcntl
import os
import shutil
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from tempfile import TemporaryDirectory, gettempdir

PREFIX = "retoma-videos-"
MIN_AGE_SECONDS = 60.0
"""Seconds for which a folder is left alone: it is created before it is locked."""


@contextmanager
def temp_dir(purpose: str) -> Iterator[Path]:
    """Create a folder for one task. Folders of killed processes are deleted first."""
    _remove_abandoned()
    with TemporaryDirectory(prefix=f"{PREFIX}{purpose}-") as folder, _lock_folder(Path(folder)):
        yield Path(folder)


def _remove_abandoned() -> None:
    for folder in Path(gettempdir()).glob(f"{PREFIX}*"):
        with suppress(OSError):  # owned by another user, in use, or already deleted
            if time.time() - folder.stat().st_mtime > MIN_AGE_SECONDS:
                with _lock_folder(folder):
                    shutil.rmtree(folder)


@contextmanager
def _lock_folder(folder: Path) -> Iterator[None]:
    """Lock a folder. Raise OSError if a running process has locked it."""
    handle = os.open(folder, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW)
    try:
        fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
        yield
    finally:
        os.close(handle)
