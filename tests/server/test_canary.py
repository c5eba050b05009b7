"""Secrets that callers send, or that the environment holds, reach neither logs nor errors nor events."""

from __future__ import annotations

import logging
from typing import Annotated, Any
from urllib.parse import quote

import pytest
from fastapi import APIRouter

from retoma import App, GiveUp, NeedsReview, Pipeline, logs
from retoma.engine.api_keys import generate_secret
from retoma.engine.outcomes import Outcome
from retoma.server import Principal, require_scope
from tests.conftest import OpenSandbox
from tests.engine.builders import rows
from tests.server.api import film
from tests.server.conftest import OpenApi

JSON = {"Content-Type": "application/json"}


def broken_routes() -> APIRouter:
    router = APIRouter()

    @router.post("/broken")
    async def broken(given: dict[str, str], by: Annotated[Principal, require_scope("runs:write")]) -> None:
        raise RuntimeError(f"could not handle {given}")

    return router


async def test_planted_secrets_show_nowhere(open_api: OpenApi, caplog: pytest.LogCaptureFixture) -> None:
    application = App("films", pipelines=[film], routes=[broken_routes()])
    canary, wrong = "canary-5b1f-topic", generate_secret()
    async with open_api(application=application) as api:
        assert api.key is not None
        revoked = await api.client.api_keys.create("revoked", ["runs:write"])
        await api.client.api_keys.revoke(revoked.key.id)
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
        response = "".join(answer.text for answer in answers)
        ours = [record for record in caplog.records if not record.name.startswith("http")]  # not the test's own client
        logged = "".join(str(record.__dict__) + record.getMessage() for record in ours)
        assert "request_failed" in logged
        events = "".join(row["text"] for row in await rows(api.sandbox, "select e::text as text from retoma.events e"))
        for secret in (canary, wrong, revoked.secret, api.key):
            assert secret not in response
            assert secret not in logged
            assert secret not in events


@pytest.fixture
def secrets(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """Twenty that the environment of this process holds."""
    names = [f"NUMBER_{number}_{kind}" for number in range(5) for kind in ("KEY", "SECRET", "TOKEN", "PASSWORD")]
    for name in names:
        monkeypatch.setenv(name, f'canary/{name}+"ção"canary\n')
    return [f'canary/{name}+"ção"canary' for name in names]


@pytest.mark.parametrize("kind", [ValueError, GiveUp, NeedsReview])
async def test_no_secret_of_the_environment_appears_in_a_reported_error(
    open_sandbox: OpenSandbox, secrets: list[str], caplog: pytest.LogCaptureFixture, kind: Any
) -> None:
    pipeline = Pipeline("careless")

    @pipeline.step
    async def call() -> None:
        error = kind("".join(secrets) + quote(secrets[0]) + quote(secrets[1], safe="") + repr(secrets))
        error.add_note("x" * 2000 + secrets[1] + "x" * 7990)  # where the stack is cut
        raise error from LookupError(secrets)

    async with open_sandbox(pipeline) as sandbox, sandbox.manual_worker() as worker:
        await sandbox.client.start(pipeline)
        (outcome,) = await worker.attempt(await worker.claim())
        await worker.record_outcomes([outcome])
        events = "".join(row["text"] for row in await rows(sandbox, "select e::text as text from retoma.events e"))
    assert isinstance(outcome, Outcome)
    assert "[NUMBER_0_KEY]" in str(outcome)
    logged = "".join(str(record.__dict__) for record in caplog.records)
    assert "canary" not in f"{outcome}{events}{logged}"


@pytest.mark.parametrize("form", ["text", "json"])
def test_no_secret_of_the_environment_appears_in_a_log_line(
    secrets: list[str], monkeypatch: pytest.MonkeyPatch, form: str
) -> None:
    handlers: list[logging.Handler] = []
    monkeypatch.setenv("RETOMA_LOG", form)
    monkeypatch.setattr(logging, "basicConfig", lambda **given: handlers.extend(given["handlers"]))
    logs.configure_logging()
    error = ValueError(secrets[0])
    record = logging.LogRecord("step", 40, "", 1, f"refused: {secrets}", None, (ValueError, error, None))
    line = handlers[0].format(record)
    assert "[NUMBER_4_PASSWORD]" in line
    assert "canary" not in line
