"""The workflows of deploy/n8n in a real n8n while Retoma or n8n is down, or messages are lost."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from tests.n8n.gateway import Gateway, open_gateway
from tests.n8n.instance import N8n, run_n8n
from tests.n8n.test_workflows import SCRIPT, SCRIPT_JOB, ServedGpuApp, n8n, served, submit_and_wait
from tests.ports import free_port

__all__ = ["n8n", "served"]


@pytest.fixture
async def gateway(served: ServedGpuApp) -> AsyncIterator[Gateway]:
    """A gateway between n8n and the server under test."""
    async with open_gateway(served.address) as gateway:
        yield gateway


@pytest.fixture(autouse=True)
def _unpublish(n8n: N8n) -> Iterator[None]:
    """Free the paths of the workflows for the next test, also after a failure."""
    yield
    for workflow in n8n.call("GET", "/rest/workflows"):
        if workflow["active"]:
            n8n.call("POST", f"/rest/workflows/{workflow['id']}/deactivate", json={})


async def list_jobs(served: ServedGpuApp) -> list[Any]:
    return list((await served.gpu_app.api.get("/jobs")).json()["jobs"])


async def test_a_submission_whose_answer_was_lost_creates_one_job(served: ServedGpuApp, gateway: Gateway) -> None:
    gateway.losing = 2
    await submit_and_wait(replace(served, address=gateway.address))
    keys = gateway.header("idempotency-key")
    assert (len(keys), len(set(keys)), gateway.losing) == (3, 1, 0)
    assert len(await list_jobs(served)) == 1


async def test_a_script_that_is_sent_twice_with_a_key_creates_one_job(served: ServedGpuApp) -> None:
    workflow = await served.publish("submit-and-wait")
    for expected in ("waiting", "error"):
        answer = await served.trigger("/webhook/roteiro", json=SCRIPT, headers={"Idempotency-Key": "script-34"})
        assert answer.status_code == 200
        second = await served.wait_for_execution(workflow, expected)
    assert "belongs to a job with another body" in await asyncio.to_thread(served.n8n.data, second["id"])
    assert len(await list_jobs(served)) == 1


async def test_a_script_is_submitted_once_retoma_is_back(served: ServedGpuApp, gateway: Gateway) -> None:
    gateway.is_down = True
    waiting = asyncio.create_task(submit_and_wait(replace(served, address=gateway.address)))
    await served.wait_until(lambda: dropped(gateway, 2))
    assert not await list_jobs(served)
    gateway.is_down = False
    await waiting
    assert len(await list_jobs(served)) == 1


async def test_a_job_that_ended_is_read_once_retoma_is_back(served: ServedGpuApp, gateway: Gateway) -> None:
    workflow, job = await submit_and_wait(replace(served, address=gateway.address))
    await served.gpu_app.work([job])
    gateway.is_down = True

    async def asked_in_vain() -> bool:
        await served.send_callbacks()
        return await dropped(gateway, 2)

    await served.wait_until(asked_in_vain)
    assert (await served.get_last_execution(workflow))["status"] == "running"
    gateway.is_down = False
    ended = await served.wait_for_execution(workflow, "success", "error")
    assert ended["status"] == "success"
    (delivery,) = await served.gpu_app.client.webhooks.list_deliveries(limit=5)
    assert str(delivery.state) == "delivered"


async def dropped(gateway: Gateway, count: int) -> bool:
    return gateway.dropped >= count


async def test_a_callback_that_n8n_answered_with_500_arrives_later(served: ServedGpuApp, tmp_path: Path) -> None:
    port = free_port()
    with run_n8n(tmp_path, port, NODE_FUNCTION_ALLOW_BUILTIN="") as broken:
        workflow = await replace(served, n8n=broken).publish("webhook-trigger")
        job = await served.gpu_app.submit({**SCRIPT_JOB, "webhook_url": f"{broken.address}/webhook/gerarVideo"})
        await served.gpu_app.work([job])
        await served.send_callbacks()
        assert await attempts(served) == [500]
    await served.send_callbacks()
    assert await attempts(served) == [500, None]
    with run_n8n(tmp_path, port) as fixed:
        again = replace(served, n8n=fixed)
        await again.wait_until(lambda: is_published(fixed))

        async def delivered() -> bool:
            await served.send_callbacks()
            return (await attempts(served))[-1] == 200

        await again.wait_until(delivered)
        used = await again.wait_for_execution(workflow, "success")
        assert job in await asyncio.to_thread(fixed.data, used["id"])
        (delivery,) = await served.gpu_app.client.webhooks.list_deliveries(limit=5)
        assert str(delivery.state) == "delivered"


async def attempts(served: ServedGpuApp) -> list[int | None]:
    """Return the status that each attempt to deliver the callback was answered with; None for no answer."""
    (delivery,) = await served.gpu_app.client.webhooks.list_deliveries(limit=5)
    shown = await served.gpu_app.client.webhooks.get_delivery(delivery.id)
    return [each.status for each in shown.attempts]


async def is_published(n8n: N8n) -> bool:
    answer = await asyncio.to_thread(lambda: n8n.trigger("/webhook/gerarVideo", json={}))
    return answer.status_code == 401
