"""The server while its database is away: it says so in time, and what it did not acknowledge can be sent again."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import httpx2
import pytest

from retoma.client import Client
from retoma.engine import start
from retoma.server import edge, make_server
from retoma.settings import Settings
from tests.faults.application import app
from tests.faults.stage import Stage, until

KEY = {"X-API-Key": "token"}
BODY = {"pipeline": "chain", "input": {"nonce": "one", "size": 0}}


@asynccontextmanager
async def an_api(stage: Stage) -> AsyncIterator[httpx2.AsyncClient]:
    """A server that reaches the database by way of the proxy."""
    client = Client(app, stage.through)
    server = make_server(app, client, Settings(), development="token")
    transport = httpx2.ASGITransport(app=server, client=("127.0.0.1", 50_000))
    async with httpx2.AsyncClient(transport=transport, base_url="http://127.0.0.1", headers=KEY) as http:
        try:
            yield http
        finally:
            await client.close()


async def started(api: httpx2.AsyncClient) -> Any:
    return await api.post("/api/v1/runs", json=BODY, headers={"Idempotency-Key": "one"})


async def test_a_database_that_falls_silent_is_503_in_time_and_a_start_is_sent_again(
    stage: Stage, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with an_api(stage) as api:
        assert (await api.get("/api/v1/runs")).status_code == 200
        assert (await api.post("/api/v1/runs", json=BODY)).status_code == 202
        for connection in stage.proxy.connections:
            connection.open.clear()
        with monkeypatch.context() as hurried:
            hurried.setattr(edge, "SECONDS", 0.5)
            hurried.setattr(start, "PATIENCE", 0.8)
            answers = [await api.get("/api/v1/runs"), await started(api)]
        assert [(answer.status_code, answer.headers["retry-after"]) for answer in answers] == [(503, "2")] * 2

        async def acknowledged() -> Any:
            answer = await started(api)
            return answer if answer.status_code != 503 else None

        answer = await until(acknowledged, "the start is acknowledged")
        assert answer.status_code in (200, 202)
        assert len(await stage.client.runs()) == 2


async def test_connections_that_are_cut_are_not_seen_by_callers(stage: Stage) -> None:
    async with an_api(stage) as api:
        for reset in (True, False, True):
            assert (await api.get("/api/v1/runs")).status_code == 200
            stage.proxy.cut(reset=reset)
        assert (await started(api)).status_code == 202
        assert (await api.get("/readyz")).status_code == 200
