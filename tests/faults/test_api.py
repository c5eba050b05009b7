"""The server while its database is unreachable: it responds in time, and unacknowledged requests can be resent."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import httpx2
import pytest

from retoma.client import Client
from retoma.engine import run_starter
from retoma.server import make_server, request_limits
from retoma.settings import Settings
from tests.faults.application import app
from tests.faults.testbed import FaultEnvironment, wait_until

KEY = {"X-API-Key": "token"}
BODY = {"pipeline": "chain", "input": {"nonce": "one", "size": 0}}


@asynccontextmanager
async def open_api(testbed: FaultEnvironment) -> AsyncIterator[httpx2.AsyncClient]:
    """A server that reaches the database by way of the proxy."""
    client = Client(app, testbed.through)
    server = make_server(app, client, Settings(), dev_token="token")
    transport = httpx2.ASGITransport(app=server, client=("127.0.0.1", 50_000))
    async with httpx2.AsyncClient(transport=transport, base_url="http://127.0.0.1", headers=KEY) as http:
        try:
            yield http
        finally:
            await client.close()


async def start_run(api: httpx2.AsyncClient) -> Any:
    return await api.post("/api/v1/runs", json=BODY, headers={"Idempotency-Key": "one"})


async def test_an_unresponsive_database_is_503_and_a_start_is_repeated(
    testbed: FaultEnvironment, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with open_api(testbed) as api:
        assert (await api.get("/api/v1/runs")).status_code == 200
        assert (await api.post("/api/v1/runs", json=BODY)).status_code == 202
        testbed.proxy.open.clear()
        with monkeypatch.context() as hurried:
            hurried.setattr(request_limits, "RESPONSE_TIMEOUT_SECONDS", 0.5)
            hurried.setattr(run_starter, "CALL_TIMEOUT", 0.8)
            answers = [await api.get("/api/v1/runs"), await start_run(api)]
        testbed.proxy.open.set()
        assert [(answer.status_code, answer.headers.get("retry-after")) for answer in answers] == [(503, "2")] * 2

        async def acknowledged() -> Any:
            answer = await start_run(api)
            return answer if answer.status_code != 503 else None

        answer = await wait_until(acknowledged, "the start is acknowledged")
        assert answer.status_code in (200, 202)
        assert len(await testbed.client.runs.list()) == 2


async def test_callers_do_not_notice_cut_connections(testbed: FaultEnvironment) -> None:
    async with open_api(testbed) as api:
        for reset in (True, False, True):
            assert (await api.get("/api/v1/runs")).status_code == 200
            testbed.proxy.cut(reset=reset)
        assert (await start_run(api)).status_code == 202
        assert (await api.get("/readyz")).status_code == 200
