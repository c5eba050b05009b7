"""Record which applications the servers of this RETOMA_HOME serve, so other commands need no `--app`."""

from __future__ import annotations

import fcntl
import json
import os
import tempfile
from collections.abc import Awaitable, Callable, Iterable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import asdict, dataclass
from pathlib import Path
from uuid import uuid4

import typer

from retoma import private_files
from retoma.app import App
from retoma.cli import application
from retoma.cli.command_setup import open_client, run_async
from retoma.client import Client
from retoma.logs import get_logger
from retoma.settings import Settings

log = get_logger(__name__)
FOLDER = "servers"


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
        file = _write(home, ServedApplication(location, str(Path.cwd()), sorted(app.pipelines)))
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
            file.path.unlink(missing_ok=True)
        os.close(file.descriptor)


def load_application(
    location: str | None, settings: Settings, find_pipelines: Callable[[Client], Awaitable[Iterable[str]]]
) -> App | None:
    """Load the application at `location` or of the settings, or else the served one that defines these pipelines.

    Return None if there is none. `find_pipelines` is called only if a server has to be found.
    """
    if location or settings.app:
        return application.load(location, settings)
    return load_served(settings, run_async(_query_pipelines(settings, find_pipelines)))


def require_application(
    location: str | None, settings: Settings, find_pipelines: Callable[[Client], Awaitable[Iterable[str]]]
) -> App:
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


async def _query_pipelines(
    settings: Settings, find_pipelines: Callable[[Client], Awaitable[Iterable[str]]]
) -> Iterable[str]:
    async with open_client(settings) as client:
        return await find_pipelines(client)


@dataclass(frozen=True)
class _LockedFile:
    path: Path
    descriptor: int


def _write(home: Path, served: ServedApplication) -> _LockedFile:
    folder = private_files.create_folder(private_files.create_home(home) / FOLDER)
    descriptor, temporary = tempfile.mkstemp(prefix=".", dir=folder)
    # Lock the file before it gets its name: an unlocked file is a leftover of a killed server.
    fcntl.flock(descriptor, fcntl.LOCK_EX)
    os.write(descriptor, json.dumps(asdict(served)).encode())
    return _LockedFile(Path(temporary).rename(folder / f"{uuid4()}.json"), descriptor)


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
