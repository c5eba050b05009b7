"""Run the orchestrator as deployed: a server, workers and RunPod's stand-in, each in its own process."""

from __future__ import annotations

import asyncio
import os
import re
import signal
import subprocess
import sys
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import AsyncExitStack, ExitStack, asynccontextmanager, contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import httpx2

from retoma.client import Client
from retoma.records import Scope
from retoma.testing import fresh_database
from tests.cli.terminal import Process, Terminal, wait_until
from tests.ports import free_port
from tests.receiver import Receiver

PROJECT = Path(__file__).parents[2]
APP = "retoma_apps.gpu"
WAIT_TIMEOUT = 180.0
SLOTS = 3  # the workers at RunPod
PARTS = 9  # of a job of 100 images
ENDS = ("COMPLETED", "FAILED", "CANCELLED")


def images(count: int, duracao: float = 5.0, origin: str = "https://example.com") -> list[dict[str, Any]]:
    return [
        {"id": str(number), "image_url": f"{origin}/{number}.png", "duracao": duracao} for number in range(1, count + 1)
    ]


@dataclass
class GpuDeployment:
    terminal: Terminal
    client: Client
    http: httpx2.AsyncClient
    port: int
    standin: str | None
    stack: ExitStack
    servers: list[Process] = field(default_factory=list)
    workers: list[Process] = field(default_factory=list)

    def start(self, workers: int = 1) -> None:
        self.servers.append(self.stack.enter_context(self.terminal.process("serve", APP, "--port", str(self.port))))
        for _ in range(workers):
            self.workers.append(self.stack.enter_context(self.terminal.process("worker", APP)))
        for process in self.servers:
            process.wait_for_output("server_ready")
        for process in self.workers:
            process.wait_for_output("worker_ready")

    def kill(self) -> None:
        """Kill all of our processes at once, as a power cut does; the stand-in keeps running."""
        for process in [*self.servers, *self.workers]:
            os.kill(process.pid, signal.SIGKILL)
            process.wait_for_exit()
        self.servers.clear()
        self.workers.clear()

    async def submit(
        self, operation: str, body: dict[str, Any], listener: Receiver | None = None, **headers: str
    ) -> str:
        hook = {} if listener is None else {"webhook_url": listener.url}
        answer = await self.http.post(f"/video/{operation}/async", json=body | hook, headers=headers)
        assert answer.status_code == 202, answer.text
        return str(answer.json()["jobId"])

    async def show(self, job: str) -> dict[str, Any]:
        return dict((await self.http.get(f"/jobs/{job}")).json())

    async def wait_for_end(self, job: str) -> dict[str, Any]:
        return await self.wait_for(job, lambda shown: shown["status"] in ENDS)

    async def wait_for(self, job: str, wanted: Callable[[dict[str, Any]], bool]) -> dict[str, Any]:
        """The job, once it is as wanted."""
        async with asyncio.timeout(WAIT_TIMEOUT):
            while True:
                shown = await self.show(job)
                if wanted(shown):
                    return shown
                await asyncio.sleep(0.1)

    async def count_free_workers(self) -> int:
        """Workers at RunPod that nobody holds."""
        pool = await self._pool()
        return int(pool["capacity"] - pool["used"])

    async def hold_jobs(self, *bodies: dict[str, Any], listener: Receiver) -> list[str]:
        """Jobs of 100 images, of which no part begins before all of them could: then their order is known."""
        await self._set_capacity(0)
        jobs = [await self.submit("img2vid", body, listener) for body in bodies]
        async with asyncio.timeout(WAIT_TIMEOUT):
            while (await self._pool())["waiting"] < len(bodies) * PARTS:  # noqa: ASYNC110  (others make them)
                await asyncio.sleep(0.05)
        await self._set_capacity(SLOTS)
        return jobs

    async def _set_capacity(self, slots: int) -> None:
        answer = await self.http.put("/api/v1/pools/gpu", json={"capacity": slots})
        assert answer.status_code == 200, answer.text

    async def _pool(self) -> dict[str, Any]:
        return dict((await self.http.get("/api/v1/pools/gpu")).json())

    async def get_standin_counts(self) -> dict[str, Any]:
        """Return the stand-in's counts: evidence that does not depend on our database."""
        return await self._ask("GET", "/standin/tally")

    async def set_faults(self, **faults: Any) -> None:
        await self._ask("PUT", "/standin/faults", json=faults)

    async def _ask(self, method: str, path: str, **options: Any) -> dict[str, Any]:
        async with httpx2.AsyncClient(timeout=WAIT_TIMEOUT) as http:
            answer = await http.request(method, f"{(self.standin or '').removesuffix('/v2')}{path}", **options)
            assert answer.status_code == 200, answer.text
            return dict(answer.json())


async def wait_for_callbacks(listener: Receiver, count: int = 1) -> list[dict[str, Any]]:
    """Return the received callbacks once there are enough of them."""
    async with asyncio.timeout(WAIT_TIMEOUT):
        while True:
            if len(listener.requests) >= count:
                return [got.json for got in listener.requests]
            await asyncio.sleep(0.05)


async def wait_for_callbacks_of_jobs(listener: Receiver, count: int) -> list[dict[str, Any]]:
    """Return callbacks once so many jobs have one: a killed sender may send a callback twice."""
    async with asyncio.timeout(WAIT_TIMEOUT):
        while True:
            by_job = {got.json["jobId"]: got.json for got in listener.requests}
            if len(by_job) >= count:
                return [*by_job.values()]
            await asyncio.sleep(0.05)


@asynccontextmanager
async def running_gpu_deployment(
    folder: Path, *, seconds_per_image: float | None, workers: int = 1, **variables: str
) -> AsyncIterator[GpuDeployment]:
    """Use the stand-in if `seconds_per_image` is set, otherwise ffmpeg."""
    async with AsyncExitStack() as later, fresh_database() as database:
        stack = later.enter_context(ExitStack())
        base_url = None if seconds_per_image is None else stack.enter_context(_standin(folder, seconds_per_image))
        port = free_port()
        body = {
            "RETOMA_DATABASE_URL": database.url,
            "RETOMA_PORT": str(port),
            "RETOMA_HEARTBEAT_TIMEOUT_SECONDS": "2",
            "RETOMA_ALLOW_HOSTS": "127.0.0.1",
            "GPU_POLL_SECONDS": "0.2",
            "WEBHOOK_SECRET": "um segredo",
        }
        if base_url is not None:
            body |= {"RUNPOD_API_KEY": "rpa_key", "RUNPOD_BASE_URL": base_url, "RUNPOD_ENDPOINT_ID": "pod"}
        client = Client(None, database)
        later.push_async_callback(client.close)
        key = (await client.api_keys.create("plant", [Scope.ADMIN])).secret
        http = await later.enter_async_context(
            httpx2.AsyncClient(base_url=f"http://127.0.0.1:{port}", headers={"X-API-Key": key}, timeout=WAIT_TIMEOUT)
        )
        deployment = GpuDeployment(Terminal(folder, body | variables), client, http, port, base_url, stack)
        deployment.start(workers)
        yield deployment
        stack.close()


@contextmanager
def _standin(folder: Path, seconds_per_image: float) -> Iterator[str]:
    output = folder / "standin"
    with output.open("w") as file:
        child = subprocess.Popen(
            [
                *(sys.executable, "-m", "standins.gpu"),
                *("--port", "0", "--seconds-per-image", str(seconds_per_image)),
            ],
            cwd=folder,
            env={**os.environ, "PYTHONPATH": f"{PROJECT}:{PROJECT / 'src'}", "RUNPOD_API_KEY": "rpa_key"},
            stdout=file,
            stderr=subprocess.STDOUT,
        )
    try:
        (base_url,) = wait_until(lambda: re.findall(r"RUNPOD_BASE_URL=(\S+)", output.read_text()))
        yield base_url
    finally:
        child.kill()
        child.wait()
