"""Renders on this machine: one folder each, whose lock is held for as long as its process lives.

    <key's digest>.<try>/order.json    what to do; gone once it is read
                         lock          held by the process that renders
                         status.json   how far it is, or how it ended; replaced whole
                         work/         what it fetched and makes; up to gigabytes, gone at the end
                         cancelled     there if a cancel was asked
                         log           what the process said

A lock is inherited by the process and let go by the system when it ends, however it ends. So nothing here can be left
claiming that it runs, and no process is mistaken for another.
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
    """The folders under `root`, which all processes of this machine that use it share."""

    def __init__(self, root: Path) -> None:
        self._root = root

    def folder(self, external_id: str) -> Path | None:
        folder = self._root / external_id
        return folder if _EXTERNAL_ID.fullmatch(external_id) and folder.is_dir() else None

    def poll(self, external_id: str) -> PollResult:
        folder = self.folder(external_id)
        if folder is None:
            return PollResult(
                "lost", code="LOST", message=f"nothing is known of the render {external_id!r} on this machine"
            )
        lives = _is_held(folder / "lock")  # looked at first: an end written meanwhile is then seen
        told = read_status(folder)
        if told is not None and PollResult(**told).is_final:
            return PollResult(**told)
        if lives:
            return PollResult("running", progress=(told or {}).get("progress"))
        shutil.rmtree(folder / "work", ignore_errors=True)  # whoever was killed could not
        if (folder / "cancelled").exists():
            return PollResult("cancelled", code="CANCELLED", message="cancelled while it was rendering")
        return PollResult("lost", code="LOST", message=f"the process that rendered {external_id!r} died without a word")

    def find(self, key: str) -> str | None:
        """The latest try with this key, if it goes on or has succeeded."""
        return self._find_usable(key, self._last_attempt(key))

    def open(self, key: str, request: dict[str, Any]) -> tuple[str, int | None]:
        """A new folder and its held lock; or, if the key's work goes on or has succeeded, that one and None."""
        draft, lock = self._create_draft(request)
        is_new = False
        try:
            handle, is_new = self._publish_draft(draft, key)
        finally:
            if not is_new:
                os.close(lock)
                shutil.rmtree(draft, ignore_errors=True)
        return handle, lock if is_new else None

    def _publish_draft(self, draft: Path, key: str) -> tuple[str, bool]:
        """The handle of the key's work, and whether the draft has become it."""
        while (found := self._find_usable(key, last := self._last_attempt(key))) is None:
            handle = _external_id(key, last + 1)
            try:
                draft.rename(self._root / handle)
            except OSError as error:
                if error.errno not in (errno.EEXIST, errno.ENOTEMPTY):
                    raise
                continue  # another submission of the same key was quicker
            return handle, True
        return found, False

    def _find_usable(self, key: str, number: int) -> str | None:
        handle = _external_id(key, number)
        return handle if number and self.poll(handle).state in ACTIVE_OR_SUCCEEDED else None

    def cancel(self, external_id: str) -> None:
        """Mark it first: a process that has not yet said its number looks for the mark when it has."""
        if (folder := self.folder(external_id)) is None:
            return
        (folder / "cancelled").touch()
        with suppress(FileNotFoundError, ProcessLookupError, ValueError):
            process = int((folder / "process").read_text())
            if _is_held(folder / "lock"):
                os.killpg(process, signal.SIGKILL)

    def delete_old(self, older_than: timedelta) -> None:
        """Remove the folders of what ended so long ago, and drafts whose maker died."""
        for folder in self._root.iterdir():
            with suppress(FileNotFoundError):  # a draft that has just become a render
                aged = time.time() - folder.stat().st_mtime > older_than.total_seconds()
                if aged and not _is_held(folder / "lock"):
                    shutil.rmtree(folder, ignore_errors=True)

    def _create_draft(self, request: dict[str, Any]) -> tuple[Path, int]:
        draft = private_files.create_folder(self._root) / f"draft-{uuid4().hex}"
        draft.mkdir(mode=0o700)
        _write(draft / "order.json", json.dumps(request))
        lock = os.open(draft / "lock", os.O_CREAT | os.O_RDWR, 0o600)
        fcntl.flock(lock, fcntl.LOCK_EX)
        return draft, lock

    def _last_attempt(self, key: str) -> int:
        return max((int(each.suffix[1:]) for each in self._root.glob(f"{_digest(key)}.*")), default=0)


def read_status(folder: Path) -> dict[str, Any] | None:
    try:
        told: dict[str, Any] = json.loads((folder / "status.json").read_text())
    except FileNotFoundError:
        return None
    return told


def write_status(folder: Path, **status: Any) -> None:
    part = folder / "status.part"
    _write(part, json.dumps(status))
    part.replace(folder / "status.json")


def _write(path: Path, text: str) -> None:
    with open(path, "w", opener=private_files.opener) as file:
        file.write(text)


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
