"""A file that appears under its name whole or not at all."""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from tempfile import TemporaryDirectory


@contextmanager
def temp_dir_beside(to: Path) -> Iterator[Path]:
    """A folder on the same disk for the work on `to`. A process that is killed leaves it behind, and `to` as it was."""
    with TemporaryDirectory(prefix=f".{to.name}-", dir=to.parent) as folder:
        yield Path(folder)


def replace_file(source: Path, target: Path) -> None:
    """Give a finished file its name, once it is safe on the disk."""
    with source.open("rb") as file:
        os.fsync(file.fileno())
    source.replace(target)
