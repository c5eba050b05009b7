"""Twenty-four secrets, by every way in, reach nothing that anybody is shown."""

from __future__ import annotations

import asyncio
import io
import json
import logging
from collections.abc import Iterator
from pathlib import Path
from typing import Any
from urllib.parse import urlencode

import pytest

from retoma import App, Client, Context, NeedsReview, Pipeline, PollResult, Retry, Webhook, logs
from retoma.errors import ProviderRejected
from retoma.testing import Sandbox
from tests.cli.terminal import Terminal
from tests.engine.builders import rows
from tests.receiver import receiver, respond_with
from tests.server.api import DEVELOPMENT_TOKEN, Api
from tests.server.conftest import OpenApi
from tests.worker.isolated_steps import telling

PEM = "-----BEGIN PRIVATE KEY-----\nCANARYpemLINEoneAAAA\nCANARYpemLINEtwoBBBB\n-----END PRIVATE KEY-----"
ENVIRONMENT = {
    "OPENROUTER_API_KEY": "CANARY-or-0001-abcd",
    "ELEVENLABS_API_KEY": "CANARY/eleven+77110002=",
    "AZURE_SPEECH_KEY": "CANARY\"quote'0003",
    "PEXELS_API_KEY": "CANARY ção 77110004 ünï",
    "IMAGES_API_KEY": "CANARY%2F0005%25",
    "WEBHOOK_SECRET": "CANARY-wh-0006-secret",
    "YOUTUBE_CLIENT_SECRET": "CANARY-yt-0007\\back",
    "YOUTUBE_REFRESH_TOKEN": "1//CANARY-0008-_tok",
    "SLACK_TOKEN": "CANARY\ttab\t77110009",
    "ADMIN_PASSWORD": "CANARY&<html>'0010",
    "DB_PASSWORD": "lowercanary",
    "SIGNING_KEY": PEM,
    "aws_secret_access_key": "CANARY-aws-0013",
    "GPU_SECRET": "CANARY-77110014-😀-emoji",
    "SENTRY_DSN": "https://CANARYdsn0015@sentry.example/1",
    "SMTP_PASS": "CANARY-smtp-0016",
    "GITHUB_PAT": "ghp_CANARY0017",
    "AWS_ACCESS_KEY_ID": "AKIACANARY0018",
    "API_KEY_2": "CANARY-second-0019",
    "GOOGLE_CREDENTIALS": '{"client_secret": "CANARY-gc-0020"}',
    "REDIS_URL": "redis://:CANARYredis0021@cache/0",
}
IN_FILE, IN_QUERY, LATE = "CANARY-dotenv-0022", "CANARY-query-0023", "CANARY-late-0024"


def list_secret_sentences() -> str:
    """Return sentences with all secrets, as careless code puts them into messages."""
    found = [*ENVIRONMENT.values(), IN_FILE, LATE]
    parts = ["CANARYpemLINEtwoBBBB", "CANARYdsn0015", "CANARY-gc-0020", "CANARYredis0021"]
    return " ".join([*found, *parts, repr(found), json.dumps(found), urlencode({"all": "".join(found)})])


class RemoteService:
    async def status(self, external_id: Any) -> PollResult:
        return PollResult("failed", code="REFUSED", message=list_secret_sentences())


def make_careless_pipeline() -> Pipeline:
    pipeline = Pipeline("careless", retry=Retry(0))
    tries: list[int] = []

    @pipeline.step
    def fails() -> None:
        logging.getLogger("careless").warning(
            "calling with %s", list_secret_sentences(), extra={"all": [list_secret_sentences()]}
        )
        try:
            raise LookupError(list_secret_sentences())
        except LookupError as error:
            logging.getLogger("careless").exception("it failed: %s", error)
            raise ValueError(list_secret_sentences()) from error

    @pipeline.step
    def refused() -> None:
        tries.append(len(tries))
        raise ProviderRejected(list_secret_sentences(), 1) if len(tries) == 1 else ValueError(list_secret_sentences())

    @pipeline.step
    async def parked(*, outside: RemoteService, ctx: Context) -> None:
        await ctx.external(lambda: "4711", poll=outside.status)

    @pipeline.step
    def asks() -> None:
        raise NeedsReview(list_secret_sentences())

    return pipeline


@pytest.fixture
def log_output(monkeypatch: pytest.MonkeyPatch) -> Iterator[io.StringIO]:
    """Return what a worker and a server write to stderr."""
    stream = io.StringIO()
    handlers: list[logging.Handler] = []
    monkeypatch.setattr(logging, "basicConfig", lambda **given: handlers.extend(given["handlers"]))
    logs.configure_logging()
    (handler,) = handlers
    assert isinstance(handler, logging.StreamHandler)
    handler.setStream(stream)
    logging.getLogger().addHandler(handler)
    yield stream
    logging.getLogger().removeHandler(handler)


@pytest.fixture
def folder(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Path:
    for name, value in ENVIRONMENT.items():
        monkeypatch.setenv(name, value)
    (tmp_path / ".env").write_text(f"STRIPE_SECRET_KEY={IN_FILE}\n")
    (tmp_path / "words").write_text(list_secret_sentences())
    monkeypatch.chdir(tmp_path)
    return tmp_path


async def test_no_secret_appears_in_any_output(
    open_api: OpenApi, folder: Path, log_output: io.StringIO, monkeypatch: pytest.MonkeyPatch
) -> None:
    def body(client: Client, run: Any, event: str) -> Any:
        raise RuntimeError(list_secret_sentences())

    logging.getLogger("careless").warning("before the last one is set")
    monkeypatch.setenv("LATE_TOKEN", LATE)
    application = App(
        "careless",
        pipelines=[make_careless_pipeline(), telling],
        resources={"outside": RemoteService()},
        webhook_body=body,
    )
    here = {"address": "127.0.0.1", "host": "127.0.0.1:8765", "development": True}
    async with open_api(application=application, **here) as api, receiver(respond_with(500)) as listener:
        hook = Webhook(f"{listener.url}?token={IN_QUERY}", retries=0)
        runs = [
            (await api.client.start("careless", {}, webhook=hook, tenant="t1")).id,
            (await api.client.start("telling", {"file": str(folder / "words")}, tenant="t1")).id,
        ]
        await api.sandbox.work()
        for run in runs:
            await api.client.runs.cancel(run)
        await api.sandbox.send_webhooks()
        shown = await everything_shown(api, [str(run) for run in runs])
        shown |= await everything_stored(api.sandbox)
        shown |= await everything_printed(api.sandbox, folder, [str(run) for run in runs])
        shown["log"] = log_output.getvalue()
        api_key = api.key
    for where in ("run telling", "events careless", "log", "delivery", "table events", "retoma runs show telling"):
        assert "[OPENROUTER_API_KEY]" in shown[where], (where, shown[where])
    secret = ("CANARY", "lowercanary", "77110002", "77110004", "77110009", "77110014", api_key)
    assert [(where, each) for where, text in shown.items() for each in secret if str(each) in text] == []


async def everything_shown(api: Api, runs: list[str]) -> dict[str, str]:
    tenant = await api.make_key("runs:read", "deliveries:read", tenant="t1")
    (delivery,) = (await api.get("/api/v1/deliveries", key=tenant)).json()["deliveries"]
    places = {
        "stuck": "/api/v1/stuck",
        "reviews": "/api/v1/reviews",
        "metrics": "/metrics",
        "endpoints": "/api/v1/endpoints",
    }
    places |= {"delivery": f"/api/v1/deliveries/{delivery['id']}", "page of delivery": f"/deliveries/{delivery['id']}"}
    places |= {"overview": "/", "live": "/api/v1/live?follow=false"}
    for name, run in zip(("careless", "telling"), runs, strict=True):
        places |= {f"run {name}": f"/api/v1/runs/{run}", f"events {name}": f"/api/v1/runs/{run}/events?limit=500"}
        places |= {f"live {name}": f"/api/v1/runs/{run}/live?follow=false", f"page {name}": f"/runs/{run}"}
    shown = {}
    for where, path in places.items():
        for who, key in {"": api.key, " by a tenant's key": tenant}.items():
            if not (path.startswith("/api") or not who):
                continue
            answer = await api.get(
                path, key=key if path.startswith("/api") or path == "/metrics" else DEVELOPMENT_TOKEN
            )
            assert answer.status_code in (200, 403), (path, answer.text)
            shown[where + who] = answer.text
    return shown


async def everything_stored(sandbox: Sandbox) -> dict[str, str]:
    """Rows of errors, events and deliveries. The URL of an endpoint is what its sender calls."""
    tables = {
        "events": "e::text",
        "jobs": "e::text",
        "external_work": "e::text",
        "reviews": "e::text",
        "runs": "e::text",
    }
    tables |= {"deliveries": "e::text", "delivery_attempts": "e::text"}
    return {
        f"table {name}": "".join(
            row["text"] for row in await rows(sandbox, f"select {what} as text from retoma.{name} e")
        )
        for name, what in tables.items()
    }


async def everything_printed(sandbox: Sandbox, folder: Path, runs: list[str]) -> dict[str, str]:
    terminal = Terminal(folder, {"RETOMA_DATABASE_URL": sandbox.database.url})
    commands = [["doctor"], ["config", "show"], ["deliveries", "list"], ["deliveries", "list", "-o", "json"]]
    commands += [["endpoints", "list"], ["runs", "list", "-o", "csv"], ["reviews", "list"]]
    named = {" ".join(command): command for command in commands}
    for name, run in zip(("careless", "telling"), runs, strict=True):
        named |= {
            f"runs show {name}": ["runs", "show", run],
            f"runs events {name}": ["runs", "events", run, "-o", "json"],
        }
    ended = {name: await asyncio.to_thread(terminal.run, *command) for name, command in named.items()}
    return {f"retoma {name}": each.stdout + each.stderr for name, each in ended.items()}
