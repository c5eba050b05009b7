"""The local host: processes that outlive the worker that started them, and never start twice."""

from __future__ import annotations

import asyncio
import errno
import os
import shutil
import signal
from collections.abc import AsyncIterator
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest

from retoma import GiveUp, PollResult, Settings
from retoma.files import FileSettings
from retoma.outgoing import LOOPBACK
from retoma_apps.providers.gpu import local
from retoma_apps.providers.gpu.local import LocalHost
from retoma_apps.providers.gpu.render_store import RenderStore
from retoma_apps.providers.gpu.runpod import RunPodHost
from standins.gpu import StandIn
from tests.apps.providers.gpu.conftest import Switch, settings_for
from tests.apps.providers.gpu.file_server import FileServer
from tests.apps.providers.gpu.media import plain_picture, read_video
from tests.wait_timeout import WAIT_TIMEOUT

MINUTE = timedelta(minutes=1)


class Machine:
    """A home folder, and hosts that share it as the workers on one machine do."""

    def __init__(self, home: Path) -> None:
        self.home = home
        self.hosts: list[LocalHost] = []

    def host(self) -> LocalHost:
        files = FileSettings(_env_file=None, home=self.home, public_url="http://here")
        made = LocalHost(Settings(_env_file=None, home=self.home, allow_hosts=LOOPBACK), files)
        self.hosts.append(made)
        return made

    async def processes_end(self) -> None:
        for host in self.hosts:
            for child in host._children:
                await asyncio.to_thread(child.wait, WAIT_TIMEOUT)

    @property
    def renders(self) -> list[str]:
        return sorted(folder.name for folder in (self.home / "renders").iterdir())


@pytest.fixture
async def machine(tmp_path: Path) -> AsyncIterator[Machine]:
    made = Machine(tmp_path)
    yield made
    for host in made.hosts:
        for child in host._children:
            if child.poll() is None:
                os.killpg(child.pid, signal.SIGKILL)
            child.wait(WAIT_TIMEOUT)


@pytest.fixture
async def host(machine: Machine) -> LocalHost:
    return machine.host()


def clip(url: str) -> dict[str, Any]:
    small = {"width": 64, "height": 36, "fps": 25}
    return {"prefix": "gpu/job/1/", "images": [{"id": "1", "image_url": url, "duracao": 0.4}], "picture": small}


async def wait_for_end(machine: Machine, host: LocalHost, external_id: str) -> PollResult:
    await machine.processes_end()
    return await host.status(external_id)


async def test_a_request_is_rendered_in_a_separate_process(
    machine: Machine, host: LocalHost, file_server: FileServer
) -> None:
    address = file_server.put("image", plain_picture())
    handle = await host.submit("img2vid", clip(address), key="key", timeout=MINUTE)
    report = await wait_for_end(machine, host, handle)
    assert (report.state, report.progress) == ("succeeded", 1.0)
    assert report.result["videos"][0]["video_url"] == "http://here/files/gpu/job/1/video_1.mp4"
    assert len(read_video(machine.home / "files/gpu/job/1/video_1.mp4").frames) == 10
    assert not (machine.home / "renders" / handle / "work").exists()


async def test_other_users_cannot_read_a_render(machine: Machine, host: LocalHost, file_server: FileServer) -> None:
    handle = await host.submit("img2vid", clip(file_server.put("image", plain_picture())), key="key", timeout=MINUTE)
    await wait_for_end(machine, host, handle)
    left = list((machine.home / "renders").rglob("*"))
    assert left
    assert [path.name for path in left if path.stat().st_mode & 0o077] == []


async def test_a_key_whose_work_is_running_or_succeeded_is_not_rendered_again(
    machine: Machine, host: LocalHost, file_server: FileServer
) -> None:
    address = file_server.put("image", plain_picture())
    first = await host.submit("img2vid", clip(address), key="key", timeout=MINUTE)
    assert await machine.host().submit("img2vid", clip(address), key="key", timeout=MINUTE) == first
    await machine.processes_end()
    assert await machine.host().submit("img2vid", clip(address), key="key", timeout=MINUTE) == first
    assert file_server.asked == ["/image"]


async def test_concurrent_submissions_of_one_key_start_one_process(machine: Machine, file_server: FileServer) -> None:
    hosts = [machine.host() for _ in range(8)]
    request_data = clip(f"{file_server.origin}/hangs")
    handles = await asyncio.gather(*(one.submit("img2vid", request_data, key="key", timeout=MINUTE) for one in hosts))
    assert len(set(handles)) == 1
    assert sum(len(one._children) for one in hosts) == 1
    assert machine.renders == [handles[0]]


def test_a_second_submission_with_a_key_gets_the_first_external_id(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    renders = RenderStore(tmp_path)
    first, lock = renders.open("key", {})
    probe = iter([0])
    monkeypatch.setattr(
        renders, "_last_attempt", lambda _: next(probe, 1)
    )  # the first check was before the first arrived
    assert renders.open("key", {}) == (first, None)
    assert lock is not None
    os.close(lock)
    assert [folder.name for folder in tmp_path.iterdir()] == [first]


def test_a_folder_that_cannot_be_created_is_reported_and_leaves_nothing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    renders, rename = RenderStore(tmp_path), Path.rename
    full = iter([OSError(errno.ENOSPC, "no space left")])

    def renamed(self: Path, target: Path) -> Path:
        for error in full:
            raise error
        return rename(self, target)

    monkeypatch.setattr(Path, "rename", renamed)
    with pytest.raises(OSError, match="no space left"):
        renders.open("key", {})
    assert list(tmp_path.iterdir()) == []


async def test_work_continues_without_the_worker_that_submitted_it_and_another_finds_it(
    machine: Machine, host: LocalHost, file_server: FileServer
) -> None:
    handle = await host.submit("img2vid", clip(f"{file_server.origin}/hangs"), key="key", timeout=MINUTE)
    [child] = host._children
    assert os.getsid(child.pid) == child.pid, "a signal to the worker's own session does not reach it"
    other = machine.host()
    assert await other.find("key") == handle
    assert (await other.status(handle)).state == "running"
    assert await other.find("another key") is None


async def test_a_killed_process_is_lost_and_its_key_can_be_resubmitted(
    machine: Machine, host: LocalHost, file_server: FileServer
) -> None:
    handle = await host.submit("img2vid", clip(f"{file_server.origin}/hangs"), key="key", timeout=MINUTE)
    await asyncio.wait_for(file_server.hanging.wait(), WAIT_TIMEOUT)
    os.kill(host._children[0].pid, signal.SIGKILL)
    assert (await wait_for_end(machine, host, handle)).state == "lost"
    assert await host.find("key") is None
    again = await host.submit("img2vid", clip(file_server.put("image", plain_picture())), key="key", timeout=MINUTE)
    assert again != handle
    assert (await wait_for_end(machine, host, again)).state == "succeeded"


async def test_a_cancel_kills_the_process_and_is_reported_once_it_is_dead(
    machine: Machine, host: LocalHost, file_server: FileServer
) -> None:
    handle = await host.submit("img2vid", clip(f"{file_server.origin}/hangs"), key="key", timeout=MINUTE)
    await asyncio.wait_for(file_server.hanging.wait(), WAIT_TIMEOUT)
    work = machine.home / "renders" / handle / "work"
    assert work.exists()
    await machine.host().cancel(handle)
    assert (await wait_for_end(machine, host, handle)).state == "cancelled"
    assert not work.exists()
    assert await host.find("key") is None


async def test_a_cancel_before_the_process_has_started_also_stops_it(
    machine: Machine, host: LocalHost, file_server: FileServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    def too_late(folder: Path, lock: int) -> Any:
        (folder / "cancelled").touch()
        return start(folder, lock)

    start = local._start_renderer
    monkeypatch.setattr(local, "_start_renderer", too_late)
    handle = await host.submit("img2vid", clip(file_server.put("image", plain_picture())), key="key", timeout=MINUTE)
    assert (await wait_for_end(machine, host, handle)).state == "cancelled"
    assert file_server.asked == []


async def test_a_cancel_after_the_end_changes_nothing(
    machine: Machine, host: LocalHost, file_server: FileServer
) -> None:
    address = file_server.put("image", plain_picture())
    handle = await host.submit("img2vid", clip(address), key="key", timeout=MINUTE)
    await machine.processes_end()
    await host.cancel(handle)
    assert (await host.status(handle)).state == "succeeded"
    await host.cancel("no such render")


async def test_a_request_that_takes_too_long_fails_with_the_code_timeout(
    machine: Machine, host: LocalHost, file_server: FileServer
) -> None:
    request_data = clip(f"{file_server.origin}/hangs")
    handle = await host.submit("img2vid", request_data, key="key", timeout=timedelta(milliseconds=50))
    report = await wait_for_end(machine, host, handle)
    assert (report.state, report.code) == ("failed", "TIMEOUT")


async def test_a_corrupt_image_is_named_in_the_failure(
    machine: Machine, host: LocalHost, file_server: FileServer
) -> None:
    handle = await host.submit(
        "img2vid", clip(file_server.put("image", b"\x89PNG\r\n\x1a\n...")), key="key", timeout=MINUTE
    )
    report = await wait_for_end(machine, host, handle)
    assert (report.state, report.code, report.message) == ("failed", "CORRUPT_IMAGE", "Image 1 is corrupted")


async def test_the_end_of_a_render_triggers_the_callback(
    machine: Machine, host: LocalHost, file_server: FileServer
) -> None:
    address, back = file_server.put("image", plain_picture()), f"{file_server.origin}/back"
    await host.submit("img2vid", clip(address), key="key", callback_url=back, timeout=MINUTE)
    await machine.processes_end()
    assert file_server.asked == ["/image", "/back"]


async def test_the_process_has_no_secrets_of_the_worker_in_its_environment(
    machine: Machine, host: LocalHost, file_server: FileServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in ("RETOMA_DATABASE_URL", "RUNPOD_API_KEY", "WEBHOOK_SECRET"):
        monkeypatch.setenv(name, "CANARY")
    handle = await host.submit("img2vid", clip(f"{file_server.origin}/hangs"), key="key", timeout=MINUTE)
    await asyncio.wait_for(file_server.hanging.wait(), WAIT_TIMEOUT)
    assert b"CANARY" not in _environment(host._children[0].pid)
    kept = [file.read_bytes() for file in (machine.home / "renders" / handle).iterdir() if file.is_file()]
    assert b"CANARY" not in b"".join(kept)


async def test_an_invalid_request_is_rejected_before_a_process_starts(machine: Machine, host: LocalHost) -> None:
    with pytest.raises(GiveUp, match=r"images\.0\.image_url"):
        await host.submit("img2vid", clip("file:///etc/passwd"), key="key", timeout=MINUTE)
    assert host._children == []


@pytest.mark.parametrize("handle", ["../../etc", "/etc", "", "0" * 32 + ".1"])
async def test_an_invalid_external_id_counts_as_lost(host: LocalHost, handle: str) -> None:
    assert (await host.status(handle)).state == "lost"


async def test_ended_renders_are_deleted_after_a_day_and_running_ones_never(
    machine: Machine, host: LocalHost, file_server: FileServer
) -> None:
    live = await host.submit("img2vid", clip(f"{file_server.origin}/hangs"), key="live", timeout=MINUTE)
    dead = machine.home / "renders" / ("0" * 32 + ".1")
    shutil.copytree(machine.home / "renders" / live, dead)
    for folder in (live, dead.name):
        os.utime(machine.home / "renders" / folder, (0, 0))
    host._renders.delete_old(timedelta(days=1))
    assert machine.renders == [live]


async def test_the_stand_in_renders_with_a_local_host(machine: Machine, switch: Switch) -> None:
    file_server = FileServer(switch.origin)
    standin = StandIn(manual=True, twin=machine.host())

    async def both(scope: Any, receive: Any, send: Any) -> None:
        chosen = standin.app if scope["path"].startswith("/v2/") else file_server
        await chosen(scope, receive, send)

    switch.app = both
    runpod = RunPodHost(settings_for(f"{switch.origin}/v2"))
    request_data = clip(file_server.put("image", plain_picture()))
    handle = await runpod.submit("img2vid", request_data, key="key", timeout=MINUTE)
    await standin.tick()
    await machine.processes_end()
    await standin.tick()
    report = await runpod.status(handle)
    assert (report.state, report.result["failed"]) == ("succeeded", [])
    assert len(read_video(machine.home / "files/gpu/job/1/video_1.mp4").frames) == 10
    await runpod.close()


async def test_a_request_that_the_stand_in_rejects_fails_alone(machine: Machine, switch: Switch) -> None:
    standin = StandIn(manual=True, twin=machine.host())
    switch.app = standin.app
    runpod = RunPodHost(settings_for(f"{switch.origin}/v2"))
    handles = [
        await runpod.submit("img2vid", request_data, key=str(request_data), timeout=MINUTE)
        for request_data in ({"prefix": "gpu/job/1/"}, clip("http://127.0.0.1:9/nobody"))
    ]
    await standin.tick()
    refused, rendering = [await runpod.status(handle) for handle in handles]
    assert (refused.state, refused.message) == ("failed", "img2vid: images: Field required")
    assert rendering.state == "running"
    await runpod.close()


def _environment(process: int) -> bytes:
    return Path(f"/proc/{process}/environ").read_bytes()
