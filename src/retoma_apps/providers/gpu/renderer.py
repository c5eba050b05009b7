"""The process that renders one request: `python -m retoma_apps.providers.gpu.renderer FOLDER`.

It inherits the folder's lock and holds it until it exits. It may be killed at any time.
"""

from __future__ import annotations

import asyncio
import json
import os
import shutil
import sys
import time
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import Any

from retoma import GiveUp, private_files
from retoma.files import FileSettings, create_file_store
from retoma.outgoing import Guard, HttpClient, NoResponse, UnsafeUrl
from retoma.privileges import drop_privileges
from retoma_apps.providers.gpu.ffmpeg_renderer import FfmpegRenderer, RenderFailed
from retoma_apps.providers.gpu.render_requests import parse_render_request
from retoma_apps.providers.gpu.render_store import write_status

_PROGRESS_INTERVAL = 0.2  # seconds
_NICENESS = 5  # the worker on this machine must keep sending heartbeats


def main() -> None:
    drop_privileges()
    folder = Path(sys.argv[1])
    private_files.write_file(folder / "process", str(os.getpid()))
    if (folder / "cancelled").exists():
        return
    os.nice(_NICENESS)
    order_file = folder / "order.json"
    request = json.loads(order_file.read_text())
    order_file.unlink()  # it contains the callback's token, which is not needed again
    asyncio.run(render(folder, request))


async def render(folder: Path, job: dict[str, Any]) -> None:
    write_status(folder, **await _run_render(folder, job))
    if job["callback_url"] is not None:
        await _call_back(job["callback_url"], folder.name)


async def _run_render(folder: Path, job: dict[str, Any]) -> dict[str, Any]:
    work_folder = folder / "work"
    work_folder.mkdir()
    try:
        async with asyncio.timeout(job["timeout"]), HttpClient(Guard.from_hosts(job["allow_hosts"])) as outgoing:
            files = create_file_store(FileSettings(**job["files"]))
            renderer = FfmpegRenderer(work_folder, outgoing, files, _progress_reporter(folder))
            return {
                "state": "succeeded",
                "result": await renderer.render(parse_render_request(job["operation"], job["input"])),
                "progress": 1.0,
            }
    except TimeoutError:
        return _failure("TIMEOUT", f"not rendered within {job['timeout']:g} s")
    except RenderFailed as error:
        return _failure(error.code, str(error), error.details)
    except GiveUp as error:
        return _failure(error.code, str(error))
    except Exception as error:  # noqa: BLE001  (ending without an outcome would be worse)
        return _failure("PROCESSING_ERROR", f"{type(error).__name__}: {error}"[:500])
    finally:
        shutil.rmtree(work_folder, ignore_errors=True)


def _failure(code: str, message: str, details: str | None = None) -> dict[str, Any]:
    return {"state": "failed", "code": code, "message": message, "result": {"details": details} if details else None}


def _progress_reporter(folder: Path) -> Callable[[float], None]:
    written_at = 0.0

    def write_progress(progress: float) -> None:
        nonlocal written_at
        if time.monotonic() - written_at >= _PROGRESS_INTERVAL:
            written_at = time.monotonic()
            write_status(folder, state="running", progress=round(progress, 4))

    return write_progress


async def _call_back(url: str, external_id: str) -> None:
    """Hint that the status has changed. If the hint is lost, polling finds it."""
    with suppress(NoResponse, UnsafeUrl):
        async with HttpClient(Guard().with_origin_of(url)) as outgoing:
            await outgoing.request("POST", url, json={"id": external_id})


if __name__ == "__main__":
    main()
