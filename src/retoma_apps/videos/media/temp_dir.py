"""Folders for work under way, which are gone soon after their process, however it ended."""

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
"""Seconds in which a folder is left alone: it is made before it is locked."""


@contextmanager
def temp_dir(purpose: str) -> Iterator[Path]:
    """A folder for one piece of work. What processes have left behind that were killed is cleared away first."""
    _remove_abandoned()
    with TemporaryDirectory(prefix=f"{PREFIX}{purpose}-") as folder, _locked(Path(folder)):
        yield Path(folder)


def _remove_abandoned() -> None:
    for folder in Path(gettempdir()).glob(f"{PREFIX}*"):
        with suppress(OSError):  # it is another user's, in use, or gone meanwhile
            if time.time() - folder.stat().st_mtime > MIN_AGE_SECONDS:
                with _locked(folder):
                    shutil.rmtree(folder)


@contextmanager
def _locked(folder: Path) -> Iterator[None]:
    """Raises OSError if a living process has it."""
    handle = os.open(folder, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW)
    try:
        fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
        yield
    finally:
        os.close(handle)
