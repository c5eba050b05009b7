"""Secrets that callers send reach neither logs nor errors nor events."""

from __future__ import annotations

import logging
from typing import Annotated

import pytest
from fastapi import APIRouter

from retoma import App
from retoma.engine.keys import new_secret
from retoma.server import Caller, caller
from tests.engine.builders import rows
from tests.server.api import film
from tests.server.conftest import OpenApi

JSON = {"Content-Type": "application/json"}


def broken_routes() -> APIRouter:
    router = APIRouter()

    @router.post("/broken")
    async def broken(given: dict[str, str], by: Annotated[Caller, caller("runs:write")]) -> None:
        raise RuntimeError(f"could not handle {given}")

    return router


async def test_planted_secrets_show_nowhere(open_api: OpenApi, caplog: pytest.LogCaptureFixture) -> None:
    application = App("films", pipelines=[film], routes=[broken_routes()])
    canary, wrong = "canary-5b1f-topic", new_secret()
    async with open_api(application=application) as api:
        assert api.key is not None
        revoked = await api.client.make_key("revoked", ["runs:write"])
        await api.client.revoke_key(revoked.key.id)
        with caplog.at_level(logging.DEBUG):
            answers = [
                await api.post("/api/v1/runs", json={"pipeline": "film", "input": {"scenes": canary}}),
                await api.post("/api/v1/runs", json={"pipeline": "film", "priority": canary}),
                await api.post("/api/v1/runs", json={"pipeline": "film", "input": canary}),
                await api.post("/api/v1/runs", content=f'{{"pipeline": "{canary}'.encode(), headers=JSON),
                await api.post("/api/v1/runs/bulk", json={"pipeline": "film", "inputs": [{"scenes": canary}]}),
                await api.post("/broken", json={"token": canary}),
                await api.post(
                    "/api/v1/runs",
                    json={"pipeline": "film", "webhook": {"url": f"http://user:{canary}@127.0.0.1/x"}},
                ),
                await api.post(f"/api/v1/callbacks/{canary}-token", json={"token": canary}),
                await api.get("/api/v1/runs", key=wrong),
                await api.get("/api/v1/runs", key=revoked.secret),
                await api.get("/api/v1/runs", key=None, headers={"Authorization": f"Bearer {wrong}"}),
                await api.post(f"/api/v1/runs/{await api.start()}/cancel"),
            ]
        said = "".join(answer.text for answer in answers)
        ours = [record for record in caplog.records if not record.name.startswith("http")]  # not the test's own client
        logged = "".join(str(record.__dict__) + record.getMessage() for record in ours)
        assert "a request failed" in logged
        events = "".join(row["text"] for row in await rows(api.sandbox, "select e::text as text from retoma.events e"))
        for secret in (canary, wrong, revoked.secret, api.key):
            assert secret not in said
            assert secret not in logged
            assert secret not in events
