"""The stand-in itself: webhooks, duplicates, rejections, policies."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

from retoma.outgoing import LOOPBACK, Guard, HttpClient, Response
from retoma_apps.providers.gpu.runpod import RunPodHost
from standins.gpu import StandIn
from tests.apps.providers.gpu.conftest import KEY, settings_for, submit


@asynccontextmanager
async def receiver(status: int) -> AsyncIterator[tuple[str, list[dict[str, Any]]]]:
    """Receive webhooks on loopback and answer each with this status."""
    taken: list[dict[str, Any]] = []

    async def answer(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        head = (await reader.readuntil(b"\r\n\r\n")).decode().lower()
        length = int(head.split("content-length: ")[1].split("\r\n")[0])
        taken.append(json.loads(await reader.readexactly(length)))
        writer.write(f"HTTP/1.1 {status} x\r\ncontent-length: 0\r\nconnection: close\r\n\r\n".encode())
        await writer.drain()
        writer.close()

    server = await asyncio.start_server(answer, "127.0.0.1", 0)
    async with server:
        yield f"http://127.0.0.1:{server.sockets[0].getsockname()[1]}/done", taken


async def call(base_url: str, method: str, path: str, body: Any = None, key: str = KEY) -> Response:
    async with HttpClient(Guard.from_hosts(LOOPBACK)) as outgoing:
        return await outgoing.request(method, f"{base_url}/{path}", json=body, headers={"authorization": key})


async def test_the_end_of_a_job_is_sent_once_if_it_is_accepted_at_once(standin: StandIn, runpod: RunPodHost) -> None:
    async with receiver(200) as (url, taken):
        handle = await submit(runpod, callback_url=url)
        await standin.advance(10)
        await standin.advance(60)
    assert [(each["id"], each["status"]) for each in taken] == [(handle.partition("/")[2], "COMPLETED")]


async def test_a_rejected_webhook_is_tried_three_times_ten_seconds_apart(standin: StandIn, runpod: RunPodHost) -> None:
    async with receiver(500) as (url, taken):
        await submit(runpod, callback_url=url)
        counts = []
        for seconds in (1, 9, 1, 10, 60):
            await standin.advance(seconds)
            counts.append(len(taken))
    assert counts == [1, 1, 2, 3, 3]
    assert standin.tally()["webhooks"] == {"refused": 3}


async def test_a_key_submitted_twice_while_running_is_a_duplicate(
    standin: StandIn, runpod: RunPodHost, tmp_path: Path
) -> None:
    standin._ledger = tmp_path / "ledger"
    await submit(runpod, key="once")
    await submit(runpod, key="twice")
    await submit(runpod, key="twice")
    tally = standin.tally()
    assert (tally["submits"], tally["keys"], tally["duplicates"]) == (3, 2, 1)
    lines = [json.loads(line) for line in standin._ledger.read_text().splitlines()]
    assert [line["key"] for line in lines if line["what"] == "submitted"] == ["once", "twice", "twice"]


async def test_requests_without_the_key_are_refused(base_url: str) -> None:
    assert (await call(base_url, "GET", "pod/health", key="x")).status == 401
    assert (await call(base_url, "GET", "pod/health", key=f"Bearer {KEY}")).status == 200


async def test_policies_outside_runpods_bounds_are_rejected(base_url: str) -> None:
    for policy in ({"executionTimeout": 4_999}, {"ttl": 9_999}, {"ttl": 700_000_000}, {"ttl": "x"}):
        assert (await call(base_url, "POST", "pod/run", {"input": {}, "policy": policy})).status == 400
    assert (await call(base_url, "POST", "pod/run", {"prompt": 1})).status == 400


async def test_only_failed_jobs_can_be_retried(standin: StandIn, base_url: str, runpod: RunPodHost) -> None:
    standin.faults.fail = {"img2vid"}
    handle = await submit(runpod)
    job = handle.partition("/")[2]
    assert (await call(base_url, "POST", f"pod/retry/{job}")).status == 400
    await standin.advance(10)
    assert (await call(base_url, "POST", f"pod/retry/{job}")).json() == {"id": job, "status": "IN_QUEUE"}
    standin.faults.fail = set()
    await standin.advance(10)
    assert (await runpod.status(handle)).state == "succeeded"


async def test_purging_the_queue_keeps_running_jobs(standin: StandIn, base_url: str, runpod: RunPodHost) -> None:
    handles = [await submit(runpod, key=str(number)) for number in range(4)]
    assert (await call(base_url, "POST", "pod/purge-queue")).json() == {"removed": 2, "status": "completed"}
    assert [(await runpod.status(each)).state for each in handles] == ["running", "running", "lost", "lost"]


async def test_health_counts_jobs_and_workers(base_url: str, runpod: RunPodHost) -> None:
    await submit(runpod)
    body = (await call(base_url, "GET", "pod/health")).json()
    assert (body["jobs"]["inProgress"], body["workers"]) == (1, {"idle": 1, "running": 1})


async def test_faults_can_be_configured_over_http(standin: StandIn, base_url: str) -> None:
    control = base_url.removesuffix("/v2") + "/standin"
    body = await call(control, "PUT", "faults", {"rate_limited": 3, "bad_images": ["7"]})
    assert body.json()["rate_limited"] == 3
    assert standin.faults.bad_images == {"7"}
    assert (await call(control, "PUT", "faults", {"no_such": 1})).status == 400
    assert (await call(control, "GET", "tally")).json()["submits"] == 0


async def test_time_passes_and_jobs_end_automatically() -> None:
    standin = StandIn(seconds_per_image=0)
    async with standin.serving() as base_url:
        host = RunPodHost(settings_for(base_url))
        handle = await submit(host)
        assert (await host.status(handle)).state == "succeeded"
        await host.close()
