"""Start the child process of isolated steps with the same Retoma as its worker, which may not be the installed one.

The child has no PYTHONPATH, so its worker passes what to import. This file is run alone: nothing of Retoma is imported
before that.
"""

from __future__ import annotations

import importlib.util
import json
import os
import sys
from collections.abc import Sequence
from pathlib import Path

FAILED = b"-"  # what a child says before the reason why it cannot start


def main(package: str, search_path: Sequence[str]) -> None:
    try:
        _import_package(Path(package))
        # Last: a file of the application must not hide a module of the standard library.
        sys.path += [folder for folder in search_path if folder not in sys.path]
        from retoma.worker import child_process
    except BaseException as error:  # noqa: BLE001  (whatever keeps it from starting, its worker reports it)
        os.write(1, FAILED + f"{type(error).__name__}: {error}".encode(errors="replace"))
        os._exit(1)
    child_process.main()


def _import_package(folder: Path) -> None:
    """Import `retoma` from this folder, wherever Python would find it."""
    spec = importlib.util.spec_from_file_location(
        "retoma", folder / "__init__.py", submodule_search_locations=[str(folder)]
    )
    assert spec is not None
    assert spec.loader is not None
    sys.modules["retoma"] = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(sys.modules["retoma"])


if __name__ == "__main__":
    main(sys.argv[1], json.loads(sys.argv[2]))
