"""Real upload processes that are killed: the result is one video with the same bytes."""

from __future__ import annotations

import asyncio
import os
import signal
import sys
from asyncio.subprocess import PIPE, Process
from pathlib import Path

import pytest

from retoma_apps.providers.youtube.settings import CHUNK_MULTIPLE
from retoma_apps.providers.youtube.youtube import YouTube
from standins.youtube import StandIn
from tests.apps.providers.youtube import sender
from tests.apps.providers.youtube.conftest import (
    CONTENT,
    REFRESH,
    SECRET,
    SIZE,
    Switch,
    WatchedCopy,
    make_video,
    rewrite,
)


async def start_sender(where: str, session: str, film: Path, **environment: str) -> Process:
    return await asyncio.create_subprocess_exec(
        sys.executable,
        "-P",
        sender.__file__,
        where,
        session,
        str(film),
        stdout=PIPE,
        cwd=film.parent,
        env={**os.environ, **environment},
    )


def settings(switch: Switch) -> dict[str, str]:
    body = {
        "client_id": "client",
        "client_secret": SECRET,
        "refresh_token": REFRESH,
        "chunk_bytes": str(CHUNK_MULTIPLE),
    }
    return {f"YOUTUBE_{name.upper()}": value for name, value in (body | StandIn.addresses(switch.origin)).items()}


async def test_a_sender_killed_at_every_chunk_and_after_the_last_byte_creates_one_video(
    standin: StandIn, switch: Switch, youtube: YouTube, film: Path
) -> None:
    """Each process dies during its next chunk, before the answer; the next one has only the recorded session."""
    short = CONTENT[: 3 * CHUNK_MULTIPLE + 1000]
    rewrite(film, short)
    session = await youtube.begin(make_video(), len(short))
    victims: list[Process] = []
    taken: list[int] = []

    def kill(done: int) -> None:
        taken.append(done)
        victims[-1].send_signal(signal.SIGKILL)

    standin.on_chunk = kill
    for _ in range(4):
        victims.append(await start_sender("youtube", session, film, **settings(switch)))
        assert await victims[-1].wait() == -signal.SIGKILL
    assert taken == [CHUNK_MULTIPLE, 2 * CHUNK_MULTIPLE, 3 * CHUNK_MULTIPLE, len(short)]
    last = await start_sender("youtube", session, film, **settings(switch))
    output, _ = await last.communicate()
    [video] = standin.videos.values()
    assert output.decode().strip() == video.id
    assert video.content == short
    assert len(standin.sessions) == 1


@pytest.mark.parametrize("die_at", [500_000, SIZE])
async def test_a_local_channel_resumes_where_its_killed_sender_stopped(tmp_path: Path, film: Path, die_at: int) -> None:
    channel = WatchedCopy(tmp_path / "channel")
    session = await channel.begin(make_video(), SIZE)
    victim = await start_sender(str(tmp_path / "channel"), session, film, DIE_AT=str(die_at))
    assert await victim.wait() == -signal.SIGKILL
    assert await channel.videos() == []
    published = await channel.send(session, film)
    assert all(done > die_at for done in channel.done)
    [shown] = await channel.videos()
    assert shown.video_id == published.video_id
    assert shown.video.read_bytes() == CONTENT
