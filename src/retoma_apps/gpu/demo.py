"""The demo job: `retoma dev retoma_apps.gpu --demo` turns three drawings into video once and receives its webhook.

The drawings are served, and the webhook is received, by a small server on this machine.
"""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass
from functools import partial
from http import HTTPStatus
from http.server import SimpleHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from tempfile import TemporaryDirectory
from threading import Thread
from typing import Any
from urllib.parse import urlsplit
from uuid import UUID

from retoma import Client
from retoma.records import Run
from retoma.translations import N_, Translator
from retoma_apps.gpu.models import Img2VidJob, Img2VidRun
from retoma_apps.gpu.pipeline import img2vid
from retoma_apps.gpu.settings import MAX_QUEUE_TIME, Rules
from retoma_apps.providers.gpu.render_requests import Image, VideoFormat
from retoma_apps.providers.images.offline import OfflineImages

KEY = "demo"
DRAWINGS = {"manha": "morning over the hills", "tarde": "afternoon at the sea", "noite": "night in the city"}
SECONDS, WIDTH, HEIGHT, FRAMES = 2.0, 640, 360, 24
MAX_BODY_BYTES = 1_000_000
_LOCALE = Path(__file__).parent / "locale"
_LABEL = N_("Three drawings")
_STARTED = N_(
    "Three drawings are turned into video on this machine, with ffmpeg: %(page)s\n"
    "The webhook with the result goes to a receiver that this demo has started."
)
_ALREADY_ENDED = N_("The sample drawings have already been turned into video: %(page)s")
_RECEIVED = N_("the webhook has arrived: %(status)s, %(count)s videos. The first: %(url)s")


@dataclass(frozen=True)
class Receiver:
    """A server that serves the drawings by name. `bodies` are those that were posted to it."""

    url: str
    bodies: asyncio.Queue[dict[str, Any]]


async def run_demo(rules: Rules, client: Client, address: str, language: str) -> AsyncIterator[str]:
    translator = Translator(language, [_LOCALE])
    known = await client.runs.find_by_key(KEY, img2vid)
    run = None if known is None else await client.runs.get(known)
    if run is not None and run.is_over:
        yield translator.gettext(_ALREADY_ENDED, page=f"{address}/runs/{run.id}")
        return
    async with _receive(_get_port(run)) as receiver:
        started = await _start(client, rules, receiver, translator.gettext(_LABEL)) if run is None else run.id
        yield translator.gettext(_STARTED, page=f"{address}/runs/{started}")
        body = await receiver.bodies.get()
        videos = (body.get("result") or {}).get("videos") or []
        url = videos[0]["video_url"] if videos else f"{address}/runs/{started}"
        yield translator.gettext(_RECEIVED, status=body.get("status"), count=len(videos), url=url)


async def _start(client: Client, rules: Rules, receiver: Receiver, label: str) -> UUID:
    job = Img2VidJob(
        images=[
            Image(id=str(number), image_url=f"{receiver.url}/{name}.jpg", duracao=SECONDS)
            for number, name in enumerate(DRAWINGS, 1)
        ],
        picture=VideoFormat(width=WIDTH, height=HEIGHT, fps=FRAMES),
        webhook_url=f"{receiver.url}/webhook",
        path=label,
    )
    started = await client.start(
        img2vid,
        Img2VidRun.model_validate(job.model_dump()),
        key=KEY,
        webhook=rules.webhook(f"{receiver.url}/webhook"),
        deadline=MAX_QUEUE_TIME + rules.total_limit("img2vid"),
    )
    return started.id


def _get_port(run: Run | None) -> int:
    """Return the port that an unfinished job already uses, or 0 for any free one."""
    return 0 if run is None else urlsplit(run.input["webhook_url"]).port or 0


@asynccontextmanager
async def _receive(port: int) -> AsyncIterator[Receiver]:
    bodies, loop = asyncio.Queue[dict[str, Any]](), asyncio.get_running_loop()

    class Handler(SimpleHTTPRequestHandler):
        def do_POST(self) -> None:
            length = min(int(self.headers.get("Content-Length", 0)), MAX_BODY_BYTES)
            loop.call_soon_threadsafe(bodies.put_nowait, json.loads(self.rfile.read(length)))
            self.send_response(HTTPStatus.NO_CONTENT)
            self.end_headers()

        def log_message(self, *_: object) -> None: ...

    with TemporaryDirectory() as folder:
        for name, each in DRAWINGS.items():
            drawing = await OfflineImages().make(each, width=WIDTH, height=HEIGHT)
            await asyncio.to_thread(Path(folder, f"{name}.jpg").write_bytes, drawing)
        with ThreadingHTTPServer(("127.0.0.1", port), partial(Handler, directory=folder)) as server:
            Thread(target=server.serve_forever, daemon=True).start()
            try:
                yield Receiver(f"http://127.0.0.1:{server.server_port}", bodies)
            finally:
                await asyncio.to_thread(server.shutdown)
