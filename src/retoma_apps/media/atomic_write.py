"""Write a file atomically."""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from tempfile import TemporaryDirectory


@contextmanager
def write_atomically(to: Path, name: str) -> Iterator[Path]:
    """Yield a folder on the same disk; the file `name` in it, flushed to disk, then becomes `to`.

    After an error or the death of the process, `to` is unchanged.
    """
    with TemporaryDirectory(prefix=f".{to.name}-", dir=to.parent) as folder:
        yield Path(folder)
        with Path(folder, name).open("rb") as file:
            os.fsync(file.fileno())
        Path(folder, name).replace(to)
