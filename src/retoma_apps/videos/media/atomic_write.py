"""Write a file atomically."""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from tempfile import TemporaryDirectory


@contextmanager
def temp_dir_beside(to: Path) -> Iterator[Path]:
    """Create a folder on the same disk as `to`. A killed process leaves the folder behind, and `to` unchanged."""
    with TemporaryDirectory(prefix=f".{to.name}-", dir=to.parent) as folder:
        yield Path(folder)


def replace_file(source: Path, target: Path) -> None:
    """Rename a finished file to its target, once it is flushed to disk."""
    with source.open("rb") as file:
        os.fsync(file.fileno())
    source.replace(target)
