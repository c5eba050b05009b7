"""Record which applications the servers of this RETOMA_HOME serve, so other commands need no `--app`."""

from __future__ import annotations

import fcntl
import json
import os
import tempfile
from collections.abc import Callable, Coroutine, Iterable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any
from uuid import uuid4

import typer

from retoma import private_files
from retoma.app import App
from retoma.cli import application
from retoma.cli.command_setup import run_with_client
from retoma.client import Client
from retoma.logs import get_logger
from retoma.settings import Settings

log = get_logger(__name__)
FOLDER = "servers"
FindPipelines = Callable[[Client], Coroutine[Any, Any, Iterable[str]]]


@dataclass(frozen=True)
class ServedApplication:
    """An application that a server serves. `location` is relative to `folder`, the server's working directory."""

    location: str
    folder: str
    pipelines: list[str]


@contextmanager
def record(home: Path, location: str, app: App) -> Iterator[None]:
    """Record the location of this server's application until the block or the process ends."""
    try:
        path, descriptor = _write(home, ServedApplication(location, str(Path.cwd()), sorted(app.pipelines)))
    except OSError as error:
        log.warning(
            "served_application_not_recorded",
            message="could not record which application this server uses; pass --app to other commands",
            error=error,
        )
        yield
        return
    try:
        yield
    finally:
        with suppress(OSError):
            path.unlink(missing_ok=True)
        os.close(descriptor)


def load_application(location: str | None, settings: Settings, find_pipelines: FindPipelines) -> App | None:
    """Load the application at `location` or of the settings, or else the served one that defines these pipelines.

    Return None if there is none. `find_pipelines` is called only if a server has to be found.
    """
    if location or settings.app:
        return application.load(location, settings)
    return load_served(settings, run_with_client(find_pipelines))


def require_application(location: str | None, settings: Settings, find_pipelines: FindPipelines) -> App:
    """Load the application as `load_application` does. Raise BadParameter if there is none."""
    return load_application(location, settings, find_pipelines) or application.load(None, settings)


def load_served(settings: Settings, pipelines: Iterable[str]) -> App | None:
    """Load the application with these pipelines that a server of this RETOMA_HOME serves, or return None."""
    wanted = set(pipelines)
    found = {
        (each.folder, each.location) for each in _list_served(settings.home) if wanted and wanted <= set(each.pipelines)
    }
    if not found:
        return None
    if len(found) > 1:
        locations = ", ".join(sorted(location for _, location in found))
        raise typer.BadParameter(f"several served applications define the pipeline: {locations}; choose one with --app")
    ((folder, location),) = found
    return application.load(location, settings, folder=Path(folder))


def load_all_served(settings: Settings) -> list[App]:
    """Load every application that a local server serves."""
    found = {(each.folder, each.location) for each in _list_served(settings.home)}
    return [application.load(location, settings, folder=Path(folder)) for folder, location in sorted(found)]


def _write(home: Path, served: ServedApplication) -> tuple[Path, int]:
    """Return the file and its descriptor, which holds the lock until it is closed."""
    folder = private_files.create_folder(private_files.create_home(home) / FOLDER)
    descriptor, temporary = tempfile.mkstemp(prefix=".", dir=folder)
    # Lock the file before it gets its name: an unlocked file is a leftover of a killed server.
    fcntl.flock(descriptor, fcntl.LOCK_EX)
    os.write(descriptor, json.dumps(asdict(served)).encode())
    return Path(temporary).rename(folder / f"{uuid4()}.json"), descriptor


def _list_served(home: Path) -> list[ServedApplication]:
    """Return the records of this user's running servers."""
    return [served for path in (home / FOLDER).glob("*.json") if (served := _read(path)) is not None]


def _read(path: Path) -> ServedApplication | None:
    with suppress(OSError), path.open() as file:
        if os.fstat(file.fileno()).st_uid != os.geteuid():
            return None  # never load code that another user chose
        if _is_locked(file.fileno()):
            return ServedApplication(**json.load(file))
        path.unlink(missing_ok=True)
    return None


def _is_locked(descriptor: int) -> bool:
    try:
        fcntl.flock(descriptor, fcntl.LOCK_SH | fcntl.LOCK_NB)
    except BlockingIOError:
        return True
    return False
