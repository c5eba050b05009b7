"""Renders on this machine: one folder each, locked while its process runs.

    <key's digest>.<attempt>/order.json    the request; deleted once read
                             lock          held by the rendering process
                             status.json   progress or outcome; replaced atomically
                             work/         downloads and output, up to gigabytes; deleted at the end
                             cancelled     present if cancellation was requested
                             log           output of the process

The process inherits the lock, and the system releases it however the process ends. So no folder can stay marked as
running, and no process is mistaken for another.
"""

from __future__ import annotations

import errno
import fcntl
import json
import os
import re
import shutil
import signal
import time
from contextlib import suppress
from datetime import timedelta
from hashlib import sha256
from pathlib import Path
from typing import Any
from uuid import uuid4

from retoma import PollResult, private_files

ACTIVE_OR_SUCCEEDED = ("running", "succeeded")
_EXTERNAL_ID = re.compile(r"[0-9a-f]{32}\.\d{1,6}")


class RenderStore:
    """The folders under `root`, shared by all processes on this machine."""

    def __init__(self, root: Path) -> None:
        self._root = root

    def folder(self, external_id: str) -> Path | None:
        folder = self._root / external_id
        return folder if _EXTERNAL_ID.fullmatch(external_id) and folder.is_dir() else None

    def poll(self, external_id: str) -> PollResult:
        folder = self.folder(external_id)
        if folder is None:
            return PollResult("lost", code="LOST", message=f"there is no render {external_id!r} on this machine")
        is_running = _is_held(folder / "lock")  # checked first, so an outcome written meanwhile is seen
        status = read_status(folder)
        if status is not None and PollResult(**status).is_final:
            return PollResult(**status)
        if is_running:
            return PollResult("running", progress=(status or {}).get("progress"))
        shutil.rmtree(folder / "work", ignore_errors=True)  # a killed process could not
        if (folder / "cancelled").exists():
            return PollResult("cancelled", code="CANCELLED", message="cancelled while it was rendering")
        return PollResult(
            "lost", code="LOST", message=f"the process that rendered {external_id!r} died without reporting an outcome"
        )

    def find(self, key: str) -> str | None:
        """Return the latest attempt with this key, if it is running or has succeeded."""
        return self._find_usable(key, self._last_attempt(key))

    def open(self, key: str, request: dict[str, Any]) -> tuple[str, int | None]:
        """Return a new folder and its held lock; or, if the key's work is running or has succeeded, that folder and
        None."""
        draft, lock = self._create_draft(request)
        is_new = False
        try:
            external_id, is_new = self._publish_draft(draft, key)
        finally:
            if not is_new:
                os.close(lock)
                shutil.rmtree(draft, ignore_errors=True)
        return external_id, lock if is_new else None

    def _publish_draft(self, draft: Path, key: str) -> tuple[str, bool]:
        """Return the external id of the key's work, and whether the draft became it."""
        while (found := self._find_usable(key, last := self._last_attempt(key))) is None:
            external_id = _external_id(key, last + 1)
            try:
                draft.rename(self._root / external_id)
            except OSError as error:
                if error.errno not in (errno.EEXIST, errno.ENOTEMPTY):
                    raise
                continue  # a concurrent submission of the same key won
            return external_id, True
        return found, False

    def _find_usable(self, key: str, number: int) -> str | None:
        external_id = _external_id(key, number)
        return external_id if number and self.poll(external_id).state in ACTIVE_OR_SUCCEEDED else None

    def cancel(self, external_id: str) -> None:
        """Mark it first: a process that has not yet written its id checks for the mark once it has."""
        if (folder := self.folder(external_id)) is None:
            return
        (folder / "cancelled").touch()
        with suppress(FileNotFoundError, ProcessLookupError, ValueError):
            process = int((folder / "process").read_text())
            if _is_held(folder / "lock"):
                os.killpg(process, signal.SIGKILL)

    def delete_old(self, older_than: timedelta) -> None:
        """Delete the folders of renders that ended so long ago, and drafts of dead processes."""
        for folder in self._root.iterdir():
            with suppress(FileNotFoundError):  # a draft that was just renamed to a render
                aged = time.time() - folder.stat().st_mtime > older_than.total_seconds()
                if aged and not _is_held(folder / "lock"):
                    shutil.rmtree(folder, ignore_errors=True)

    def _create_draft(self, request: dict[str, Any]) -> tuple[Path, int]:
        draft = private_files.create_folder(self._root) / f"draft-{uuid4().hex}"
        draft.mkdir(mode=0o700)
        private_files.write_file(draft / "order.json", json.dumps(request))
        lock = os.open(draft / "lock", os.O_CREAT | os.O_RDWR, 0o600)
        fcntl.flock(lock, fcntl.LOCK_EX)
        return draft, lock

    def _last_attempt(self, key: str) -> int:
        return max((int(each.suffix[1:]) for each in self._root.glob(f"{_digest(key)}.*")), default=0)


def read_status(folder: Path) -> dict[str, Any] | None:
    try:
        status: dict[str, Any] = json.loads((folder / "status.json").read_text())
    except FileNotFoundError:
        return None
    return status


def write_status(folder: Path, **status: Any) -> None:
    private_files.write_file(folder / "status.json", json.dumps(status))


def _digest(key: str) -> str:
    return sha256(key.encode()).hexdigest()[:32]


def _external_id(key: str, number: int) -> str:
    return f"{_digest(key)}.{number}"


def _is_held(lock: Path) -> bool:
    try:
        file = os.open(lock, os.O_RDONLY)
    except FileNotFoundError:
        return False
    try:
        fcntl.flock(file, fcntl.LOCK_SH | fcntl.LOCK_NB)
    except BlockingIOError:
        return True
    finally:
        os.close(file)
    return False
