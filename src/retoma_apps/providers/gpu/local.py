"""The offline implementation of a GPU provider: ffmpeg in separate processes on this machine.

Work continues when the worker that submitted it dies, and a second submission of the same key returns the same external
id while that work runs or after it succeeded. All workers that share a home folder see the same renders; workers on
other machines do not, so this host is for one machine.
"""

from __future__ import annotations

import asyncio
import os
import subprocess
import sys
from datetime import timedelta
from pathlib import Path
from typing import Any, Self

from retoma import PollResult, Settings, private_files
from retoma.checks import Finding
from retoma.files import FileSettings
from retoma_apps.providers.ffmpeg import find_ffmpeg_version
from retoma_apps.providers.gpu.port import Operation
from retoma_apps.providers.gpu.render_requests import parse_render_request
from retoma_apps.providers.gpu.render_store import RenderStore

RETENTION = timedelta(days=1)
# The variables that a renderer needs to run and to reach a bucket. It parses untrusted files, so it gets no others.
_ALLOWED_VARIABLES = ("PATH", "HOME", "TMPDIR", "LANG", "LC_ALL", "SSL_CERT_FILE", "SSL_CERT_DIR", "VIRTUAL_ENV")
_ALLOWED_PREFIXES = ("AWS_",)


class LocalHost:
    name = "local"
    is_offline = True
    poll_interval = timedelta(seconds=1)
    variables: tuple[str, ...] = ()

    def __init__(self, settings: Settings | None = None, files: FileSettings | None = None) -> None:
        settings = settings or Settings()
        self._files = files or FileSettings(home=settings.home)
        self._allow_hosts = settings.allow_hosts
        self._renders = RenderStore(settings.home.absolute() / "renders")
        self._children: list[subprocess.Popen[bytes]] = []

    @classmethod
    def from_environment(cls, settings: Settings, files: FileSettings) -> Self:
        return cls(settings, files)

    async def submit(
        self,
        operation: Operation,
        input: dict[str, Any],  # noqa: A002, the port's name
        *,
        key: str,
        callback_url: str | None = None,
        timeout: timedelta,
    ) -> str:
        """Raise GiveUp if the input is not a valid request."""
        parse_render_request(operation, input)
        request = {
            "operation": operation,
            "input": input,
            "callback_url": callback_url,
            "timeout": timeout.total_seconds(),
            "allow_hosts": list(self._allow_hosts),
            "files": self._files.model_dump(mode="json"),
        }
        return await asyncio.to_thread(self._start, key, request)

    async def status(self, external_id: str) -> PollResult:
        self._children = [child for child in self._children if child.poll() is None]  # reaps those that ended
        return await asyncio.to_thread(self._renders.poll, external_id)

    async def cancel(self, external_id: str) -> None:
        await asyncio.to_thread(self._renders.cancel, external_id)

    async def find(self, key: str) -> str | None:
        return await asyncio.to_thread(self._renders.find, key)

    def check(self) -> Finding:
        version = find_ffmpeg_version()
        if version is None:
            return Finding(
                "warning", "GPUs", "no GPU provider is set, and ffmpeg, which replaces it offline, does not run"
            )
        return Finding("ok", "GPUs", f"no GPU provider is set: {version} on this machine replaces it offline")

    def _start(self, key: str, request: dict[str, Any]) -> str:
        external_id, lock = self._renders.open(key, request)
        if lock is not None:
            folder = self._renders.folder(external_id)
            assert folder is not None
            try:
                self._children.append(_start_renderer(folder, lock))
            finally:
                os.close(lock)
            self._renders.delete_old(RETENTION)
        return external_id


def _start_renderer(folder: Path, lock: int) -> subprocess.Popen[bytes]:
    """Start a process in its own session, so neither our exit nor Ctrl-C ends it."""
    with open(folder / "log", "ab", opener=private_files.opener) as log:
        return subprocess.Popen(  # noqa: S603, our own module
            [sys.executable, "-P", "-m", "retoma_apps.providers.gpu.renderer", str(folder)],
            pass_fds=[lock],
            start_new_session=True,
            cwd="/",
            env=_environment(),
            stdin=subprocess.DEVNULL,
            stdout=log,
            stderr=log,
        )


def _environment() -> dict[str, str]:
    return {
        name: text
        for name, text in os.environ.items()
        if name in _ALLOWED_VARIABLES or name.startswith(_ALLOWED_PREFIXES)
    }
