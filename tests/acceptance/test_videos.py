"""A video whose workers are killed while they narrate, render and upload: it ends, once, and little is paid twice."""

from __future__ import annotations

import asyncio
import json
import os
import re
import signal
import stat
from collections import Counter
from collections.abc import AsyncIterator, Callable
from contextlib import AsyncExitStack, ExitStack, asynccontextmanager
from dataclasses import dataclass, field
from hashlib import sha256
from pathlib import Path
from typing import Any
from uuid import UUID

import httpx2
import imageio_ffmpeg  # type: ignore[import-untyped]

from retoma.client import Client
from retoma.records import Review, Run, Scope
from retoma.reviews import Decision
from retoma.states import RunState
from retoma.testing import fresh_database
from standins.speech import StandIn as Speech
from standins.youtube import StandIn as YouTube
from tests.apps.videos.small_services import make_small_app
from tests.cli.terminal import Process, Terminal, wait_until
from tests.ports import free_port

WAIT_TIMEOUT = 120.0
SHORTER_THAN_THE_FILM = 10.0
BATCH = [
    (channel, topic)
    for channel in ("cinema", "jogos", "musica", "arte", "moda")
    for topic in ("Como o café é feito", "Como investir em renda fixa", "Como funciona a fotossíntese")
]
VIDEOS = """
from functools import cache
from pathlib import Path

from retoma.files import FileSettings, create_file_store
from retoma_apps.providers.footage.offline import Frames, OfflineFootage
from retoma_apps.providers.images.offline import OfflineImages
from retoma_apps.providers.speech.azure import Azure
from retoma_apps.providers.youtube.settings import YouTubeSettings
from retoma_apps.providers.youtube.youtube import YouTube
from retoma_apps.videos.application import make_app
from retoma_apps.videos.services import Services
from retoma_apps.videos.steps.writing.bundled import BundledWriter


@cache
def channel(account):
    return YouTube(YouTubeSettings(chunk_bytes=262_144, backoff_seconds=0.05))


app = make_app(
    Services(
        files=create_file_store(FileSettings(home=Path("home").absolute())),
        writer=BundledWriter(),
        voices={"azure": Azure()},
        footage=OfflineFootage(Frames(320, 180, fps=10)),
        images=OfflineImages(),
        channel=channel,
        size=(640, 360),
        fps=25,
    )
)
"""
# Says that it renders the film, and does so no quicker than the film is watched.
SLOW_FFMPEG = """#!/bin/sh
case "$*" in *reel-0.mp4*) echo $$ > {rendering}; exec {ffmpeg} -re "$@";; esac
exec {ffmpeg} "$@"
"""


class CountedSpeech(Speech):
    """`on_said` is called for each paid call before it is answered."""

    on_call: Callable[[int], None] = staticmethod(lambda _: None)

    def _audio(self, message: Any) -> bytes:
        self.on_call(len(self.said))
        return super()._audio(message)


@dataclass
class VideoDeployment:
    """Run one worker at a time; it is killed where the test says so and replaced by another."""

    folder: Path
    terminal: Terminal
    client: Client
    speech: CountedSpeech
    youtube: YouTube
    stack: ExitStack
    http: httpx2.AsyncClient
    port: int
    worker: Process | None = None
    server: Process | None = None
    kills: Counter[str] = field(default_factory=Counter)

    async def start_worker(self, **variables: str) -> None:
        self.worker = await asyncio.to_thread(self._worker_process, variables)

    def _worker_process(self, variables: dict[str, str]) -> Process:
        worker = self.stack.enter_context(self.terminal.process("worker", "videos.py", **variables))
        worker.wait_for_output("worker_ready")
        return worker

    def kill(self, why: str) -> None:
        """At this very moment."""
        assert self.worker is not None
        os.kill(self.worker.pid, signal.SIGKILL)
        self.kills[why] += 1

    async def start_server(self) -> None:
        """A server, through which people decide."""
        self.server = await asyncio.to_thread(self._server_process)

    def _server_process(self) -> Process:
        server = self.stack.enter_context(self.terminal.process("serve", "videos.py", "--port", str(self.port)))
        server.wait_for_output("server_ready")
        return server

    def kill_server(self) -> None:
        assert self.server is not None
        os.kill(self.server.pid, signal.SIGKILL)
        self.kills["server"] += 1

    async def replace_killed(self, **variables: str) -> None:
        assert self.worker is not None
        await asyncio.to_thread(self.worker.wait_for_exit)
        await self.start_worker(**variables)

    async def wait_for_review(self, run: UUID, step: str) -> Review:
        async with asyncio.timeout(WAIT_TIMEOUT):
            while True:
                for review in await self.client.reviews.list(run=run):
                    assert review.step == step
                    return review
                await asyncio.sleep(0.1)

    async def approve(self, run: UUID, step: str, **values: Any) -> None:
        await self.client.reviews.decide(
            (await self.wait_for_review(run, step)).id, Decision("approve", by="ana", **values)
        )

    async def wait_for_end(self, run: UUID) -> RunState:
        async with asyncio.timeout(WAIT_TIMEOUT):
            while True:
                if (found := await self.client.runs.get(run)).is_over:
                    return found.state
                await asyncio.sleep(0.1)


@asynccontextmanager
async def running_video_deployment(folder: Path) -> AsyncIterator[VideoDeployment]:
    (folder / "videos.py").write_text(VIDEOS)
    (folder / "tmp").mkdir()
    speech, youtube = CountedSpeech(), YouTube()
    async with AsyncExitStack() as later, fresh_database() as database:
        stack = later.enter_context(ExitStack())
        voice = await later.enter_async_context(speech.serving())
        addresses = YouTube.addresses(await later.enter_async_context(youtube.serving()))
        client = Client(make_small_app(folder / "ours"), database)
        later.push_async_callback(client.close)
        port = free_port()
        key = (await client.api_keys.create("crew", [Scope.ADMIN])).secret
        http = await later.enter_async_context(
            httpx2.AsyncClient(
                base_url=f"http://127.0.0.1:{port}/api/v1", headers={"X-API-Key": key}, timeout=WAIT_TIMEOUT
            )
        )
        variables = {
            "RETOMA_DATABASE_URL": database.url,
            "RETOMA_PORT": str(port),
            "RETOMA_HEARTBEAT_TIMEOUT_SECONDS": "2",
            "TMPDIR": str(folder / "tmp"),
            "AZURE_SPEECH_KEY": "chave",
            "AZURE_SPEECH_BASE_URL": voice,
            "YOUTUBE_CLIENT_ID": "id",
            "YOUTUBE_CLIENT_SECRET": "segredo",
            "YOUTUBE_REFRESH_TOKEN": "token",
            **{f"YOUTUBE_{name.upper()}": url for name, url in addresses.items()},
        }
        yield VideoDeployment(folder, Terminal(folder, variables), client, speech, youtube, stack, http, port)
        await asyncio.to_thread(stack.close)


async def test_a_video_is_published_once_though_workers_are_killed_at_every_costly_step(tmp_path: Path) -> None:
    async with running_video_deployment(tmp_path) as crew:
        brief = {"topic": "Como investir em renda fixa", "seconds": 25}
        await crew.start_worker()
        await crew.start_server()
        run = (await crew.client.start("longform", brief, tenant="financas")).id
        await narrate_with_a_kill(crew, run)
        await restart_everything(crew, run)
        await crew.approve(run, "audio_review")
        await crew.wait_for_review(run, "broll_review")
        await render_with_a_kill(crew, run)
        await crew.wait_for_review(run, "final_review")
        await upload_with_kills(crew, run)
        assert await crew.wait_for_end(run) is RunState.COMPLETED
        assert crew.kills == {"narration": 1, "office": 1, "assembly": 1, "server": 2, "upload": 2}
        await check_published_once(crew, run)
        check_no_partial_files(tmp_path)


async def test_a_batch_starts_each_video_once_though_worker_and_server_are_killed(tmp_path: Path) -> None:
    async with running_video_deployment(tmp_path) as crew:
        await crew.start_worker()
        await crew.start_server()
        batch = await order_batch(crew)
        crew.kill_server()
        await wait_for_videos(crew, batch, lambda videos: len(videos) > 0)
        crew.kill("batch")
        await crew.replace_killed()
        await crew.start_server()
        assert await order_batch(crew) == batch
        videos = await wait_for_videos(crew, batch, lambda videos: sum(map(is_paused, videos)) == len(BATCH))
        assert Counter((video.tenant, video.input["topic"]) for video in videos) == Counter(BATCH)
        assert (await crew.http.post(f"/runs/{batch}/cancel")).status_code == 200
        assert await crew.wait_for_end(batch) is RunState.CANCELLED
        videos = await wait_for_videos(crew, batch, lambda videos: all(video.is_over for video in videos))
        assert [video.state for video in videos] == [RunState.CANCELLED] * len(BATCH)


async def order_batch(deployment: VideoDeployment) -> UUID:
    order = {"videos": [{"channel": channel, "topic": topic} for channel, topic in BATCH]}
    answer = await deployment.http.post("/videos/batches", json=order, headers={"Idempotency-Key": "pauta"})
    assert answer.status_code == 202, answer.text
    return UUID(answer.json()["id"])


async def wait_for_videos(deployment: VideoDeployment, batch: UUID, holds: Callable[[list[Run]], bool]) -> list[Run]:
    """Return the videos of a batch once this holds for them."""
    async with asyncio.timeout(WAIT_TIMEOUT):
        while True:
            videos = await deployment.client.runs.list(parent=batch, limit=len(BATCH) + 1)
            if holds(videos):
                return videos
            await asyncio.sleep(0.02)


def is_paused(video: Run) -> bool:
    return video.state is RunState.PAUSED


async def narrate_with_a_kill(deployment: VideoDeployment, run: UUID) -> None:
    """Kill the worker while the second chunk is spoken: only that chunk is spoken again."""
    killed = asyncio.Event()

    def on_said(count: int) -> None:
        if count == 2 and not killed.is_set():
            deployment.kill("narration")
            killed.set()

    deployment.speech.on_call = on_said
    await deployment.approve(run, "script_review")
    async with asyncio.timeout(WAIT_TIMEOUT):
        await killed.wait()
    await deployment.replace_killed()
    await deployment.wait_for_review(run, "audio_review")
    message = Counter(one.text for one in deployment.speech.said)
    assert sorted(message.values()) == [1] * (len(message) - 1) + [2]
    assert message[deployment.speech.said[1].text] == 2


async def restart_everything(deployment: VideoDeployment, run: UUID) -> None:
    """Restart everything while a review is open: the review is unchanged."""
    review = await deployment.wait_for_review(run, "audio_review")
    before = await get_checkpoint(deployment, review)
    deployment.kill("office")
    deployment.kill_server()
    await deployment.replace_killed(**slow_ffmpeg(deployment.folder))
    await deployment.start_server()
    assert await get_checkpoint(deployment, review) == before
    assert (before["status"], before["checkpoint_type"]) == ("pending", "audio_review")


async def get_checkpoint(deployment: VideoDeployment, review: Review) -> dict[str, Any]:
    """Return the checkpoint without the queries of its links, which are signed again for each answer."""
    answer = (await deployment.http.get(f"/checkpoints/{review.id}")).text
    checkpoint: dict[str, Any] = json.loads(re.sub(r"[?]expires=\d+&signature=\w+", "", answer))
    return checkpoint


async def render_with_a_kill(deployment: VideoDeployment, run: UUID) -> None:
    rendering = deployment.folder / "rendering"
    await deployment.approve(run, "broll_review")
    program = int(await asyncio.to_thread(wait_until, lambda: rendering.exists() and rendering.read_text().strip()))
    assert is_running(program)
    deployment.kill("assembly")
    await deployment.replace_killed()
    await asyncio.to_thread(wait_until, lambda: not is_running(program), SHORTER_THAN_THE_FILM)


def is_running(process: int) -> bool:
    return Path(f"/proc/{process}").exists()


async def upload_with_kills(deployment: VideoDeployment, run: UUID) -> None:
    """Kill after the first and after the last chunk was accepted, before either was acknowledged."""
    killed = [asyncio.Event(), asyncio.Event()]
    size = (await film_of(deployment, run))["size"]

    def on_chunk(taken: int) -> None:
        at = 1 if taken == size else 0
        if not killed[at].is_set() and (at == 0 or killed[0].is_set()):
            deployment.kill("upload")
            killed[at].set()

    deployment.youtube.on_chunk = on_chunk
    review = await deployment.wait_for_review(run, "final_review")
    decision = {"action": "approved", "thumbnail": 3, "reviewer": "ana"}
    answer = await deployment.http.post(f"/checkpoints/{review.id}/decision", json=decision)
    deployment.kill_server()
    assert (answer.status_code, answer.json()["status"]) == (200, "approved")
    for event in killed:
        async with asyncio.timeout(WAIT_TIMEOUT):
            await event.wait()
        await deployment.replace_killed()


async def film_of(deployment: VideoDeployment, run: UUID) -> dict[str, Any]:
    return dict((await deployment.client.runs.get_results(run))["video_assembly"])


async def check_published_once(deployment: VideoDeployment, run: UUID) -> None:
    (video,) = deployment.youtube.videos.values()
    film = await film_of(deployment, run)
    assert sha256(video.content).hexdigest() == film["video"]["file"]
    assert video.thumbnail is not None
    assert len(deployment.youtube.sessions) == 1
    results = await deployment.client.runs.get_results(run)
    assert (results["upload"]["video_id"], results["final_review"]["thumbnail"]) == (video.id, 3)
    assert len({one.text for one in deployment.speech.said}) == len(deployment.speech.said) - 1


def check_no_partial_files(folder: Path) -> None:
    """All that is kept under a digest has that content."""
    kept = [path for path in (folder / "home").rglob("*") if path.is_file() and len(path.name) == 64]
    assert len(kept) > 10
    assert [path for path in kept if sha256(path.read_bytes()).hexdigest() != path.name] == []


def slow_ffmpeg(folder: Path) -> dict[str, str]:
    program = folder / "slowly"
    program.write_text(SLOW_FFMPEG.format(ffmpeg=imageio_ffmpeg.get_ffmpeg_exe(), rendering=folder / "rendering"))
    program.chmod(program.stat().st_mode | stat.S_IXUSR)
    return {"IMAGEIO_FFMPEG_EXE": str(program)}
