"""The body of a webhook, its signature, and that every attempt sends the same."""

from __future__ import annotations

import json
from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest
from pydantic import BaseModel
from standardwebhooks.webhooks import Webhook as Reference

from retoma import Client, GiveUp, Pipeline, Retry, Webhook, signing
from retoma.records import Run
from retoma.server.schemas import RunEvent, RunEventData
from retoma.settings import Settings
from retoma.store import deliveries
from tests.conftest import OpenSandbox, RowsRead
from tests.engine.builders import rows, value
from tests.receiver import ReceivedRequest, Responder, receiver, respond_with
from tests.webhooks.builders import BOTH, get_delivery, one_step, open_sender, run_to_end, send_until_done


class Article(BaseModel):
    text: str


async def test_a_webhook_contains_the_results(open_sandbox: OpenSandbox) -> None:
    async with open_sandbox(one_step()) as sandbox, receiver() as listener:
        run = await run_to_end(sandbox, listener.url)
        await sandbox.send_webhooks(Settings(public_url="https://retoma.example.com/"))
    (got,) = listener.requests
    assert (got.method, got.path, got.headers["content-type"]) == ("POST", "/hook", "application/json")
    assert got.headers["user-agent"].startswith("Retoma/")
    assert got.json == {
        "type": "run.completed",
        "timestamp": "2030-01-01T12:00:00Z",
        "data": {
            "run": str(run),
            "title": None,
            "tenant": "default",
            "pipeline": "one",
            "state": "completed",
            "seq": 1,
            "url": f"https://retoma.example.com/api/v1/runs/{run}",
            "input": {},
            "results": {"answer": 42},
            "error": None,
            "review": None,
            "stuck": None,
            "omitted": [],
        },
    }
    assert RunEvent.model_fields.keys() == got.json.keys()
    assert RunEventData.model_fields.keys() == got.json["data"].keys()
    RunEvent.model_validate(got.json)


async def test_a_webhook_names_the_title_of_its_run(open_sandbox: OpenSandbox) -> None:
    pipeline = Pipeline("one", Article, title="On {text}")

    @pipeline.step
    async def answer(text: str) -> int:
        return len(text)

    async with open_sandbox(pipeline) as sandbox, receiver() as listener:
        webhook = Webhook(listener.url, events=BOTH)
        await sandbox.run("one", {"text": "<b>tea</b>\x1b[2J\u202e"}, webhook=webhook)
        await sandbox.send_webhooks()
        await sandbox.send_webhooks()
    assert [(got.json["type"], got.json["data"]["title"]) for got in listener.requests] == [
        ("run.started", "On <b>tea</b>[2J"),
        ("run.completed", "On <b>tea</b>[2J"),
    ]


async def test_a_webhook_of_a_failed_run_contains_the_errors(open_sandbox: OpenSandbox) -> None:
    async with open_sandbox(one_step(fails=True)) as sandbox, receiver() as listener:
        await run_to_end(sandbox, listener.url)
        await sandbox.send_webhooks()
    payload = listener.requests[0].json["data"]
    assert (payload["state"], payload["tenant"]) == ("failed", "default")
    assert payload["error"] == {"step": "answer", "code": "GAVE_UP", "message": "no more"}


async def test_of_very_many_failures_the_last_ones_are_included(open_sandbox: OpenSandbox) -> None:
    async with open_sandbox(one_step(fails=True)) as sandbox, receiver() as listener:
        run = await run_to_end(sandbox, listener.url)
        await rows(
            sandbox,
            "insert into retoma.events (run, at, revision, kind, step, data) "
            "select $1, retoma.now(), 1, 'failure', 'other', json_build_object('message', n) "
            "from generate_series(1, 1001) n",
            run,
        )
        await sandbox.send_webhooks()
    assert listener.requests[0].json["data"]["error"] == {"step": "other", "message": "1001"}


async def test_the_signed_bytes_are_the_sent_bytes(open_sandbox: OpenSandbox) -> None:
    async with open_sandbox(one_step()) as sandbox, receiver() as listener:
        run = await run_to_end(sandbox, listener.url)
        await sandbox.send_webhooks()
        delivery, now = await get_delivery(sandbox, run), await sandbox.clock.now()
        secret = await value(sandbox, "select secret from retoma.webhook_secrets")
    (got,) = listener.requests
    assert signing.verify(secret, got.headers, got.body, now) == str(delivery.id)
    older = {name: text for name, text in got.headers.items() if not name.startswith("webhook-")}
    signing.verify(secret, older, got.body, now, legacy=True)
    assert got.body.decode() == delivery.body


async def test_the_reference_library_accepts_our_webhooks(
    open_sandbox: OpenSandbox, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with open_sandbox(one_step()) as sandbox, receiver() as listener:
        await run_to_end(sandbox, listener.url)
        await sandbox.send_webhooks()
        secret = await value(sandbox, "select secret from retoma.webhook_secrets")
        monkeypatch.setattr(
            "standardwebhooks.webhooks.Webhook._Webhook__verify_timestamp", lambda *_: verify_now(listener.requests[0])
        )
    assert (
        Reference(secret).verify(listener.requests[0].body.decode(), listener.requests[0].headers)["type"]
        == "run.completed"
    )


async def test_the_secret_in_the_settings_replaces_the_endpoints_secret(open_sandbox: OpenSandbox) -> None:
    async with open_sandbox(one_step()) as sandbox, receiver() as listener:
        await run_to_end(sandbox, listener.url)
        await sandbox.send_webhooks(Settings(webhook_secret="segredo"))
        now = await sandbox.clock.now()
    (got,) = listener.requests
    signing.verify("segredo", got.headers, got.body, now)
    signing.verify(
        "segredo",
        {name: got.headers[name] for name in ("x-webhook-timestamp", "x-webhook-signature")},
        got.body,
        now,
        legacy=True,
    )


async def test_an_invalid_secret_in_the_settings_is_reported_before_anything_is_sent(open_sandbox: OpenSandbox) -> None:
    async with open_sandbox(one_step()) as sandbox:
        with pytest.raises(ValueError, match="the base64 of 24 to 64 bytes"):
            await sandbox.send_webhooks(Settings(webhook_secret="whsec_short"))


async def test_every_attempt_has_the_same_id_and_body_and_a_timestamp_of_its_own(open_sandbox: OpenSandbox) -> None:
    async with open_sandbox(one_step()) as sandbox, receiver(respond_with(500), respond_with(500)) as listener:
        await run_to_end(sandbox, listener.url)
        for _ in range(3):
            await sandbox.send_webhooks()
            await sandbox.clock.advance(timedelta(seconds=10))
    assert len(listener.requests) == 3
    assert len({(got.body, got.headers["webhook-id"]) for got in listener.requests}) == 1
    assert len({got.headers["webhook-timestamp"] for got in listener.requests}) == 3
    assert len({got.headers["webhook-signature"] for got in listener.requests}) == 3


async def test_the_body_is_stored_before_the_first_attempt_and_never_rebuilt(open_sandbox: OpenSandbox) -> None:
    made: list[str] = []

    async def body(client: Client, run: Run, event: str) -> dict[str, Any]:
        made.append(event)
        return {"id_roteiro": 7, "times": len(made), "state": run.state}

    async with open_sandbox(one_step(), webhook_body=body) as sandbox, receiver(respond_with(500)) as listener:
        run = await run_to_end(sandbox, listener.url)
        await sandbox.send_webhooks()
        kept = (await get_delivery(sandbox, run)).body
        await sandbox.clock.advance(timedelta(seconds=10))
        await sandbox.send_webhooks()
    assert made == ["run.completed"]
    assert [got.body.decode() for got in listener.requests] == [kept, kept]
    assert json.loads(kept or "") == {"id_roteiro": 7, "times": 1, "state": "completed"}


async def test_a_body_that_cannot_be_built_is_retried_and_reports_why(open_sandbox: OpenSandbox) -> None:
    made: list[str] = []

    def body(client: Client, run: Run, event: str) -> dict[str, Any]:
        made.append(event)
        if len(made) == 1:
            raise KeyError("images")
        return {"ok": True}

    async with open_sandbox(one_step(), webhook_body=body) as sandbox, receiver() as listener:
        run = await run_to_end(sandbox, listener.url)
        await sandbox.send_webhooks()
        first = await get_delivery(sandbox, run)
        assert (str(first.state), first.error, listener.requests) == (
            "due",
            "the body of the webhook cannot be built: KeyError: 'images'",
            [],
        )
        await sandbox.clock.advance(timedelta(seconds=10))
        await sandbox.send_webhooks()
    assert listener.requests[0].json == {"ok": True}


async def test_an_end_is_sent_unchanged_though_the_run_was_rerun(
    open_sandbox: OpenSandbox,
) -> None:
    broken = {"b"}
    pipeline = Pipeline("one", retry=Retry(0))

    @pipeline.step
    async def words() -> list[str]:
        return ["a", "b"]

    @pipeline.each(words)
    async def label(word: str) -> str:
        if word in broken:
            raise GiveUp("no such word")
        return word.upper()

    async with open_sandbox(pipeline) as sandbox, receiver() as listener:
        run = await run_to_end(sandbox, listener.url)
        broken.clear()
        await sandbox.clock.advance(timedelta(minutes=1))
        await sandbox.client.runs.rerun_failed(run)
        await sandbox.work()
        await sandbox.send_webhooks()
    previous, newer = [got.json["data"] for got in listener.requests]
    assert (previous["state"], previous["results"]["label"]) == ("completed_with_errors", {"a": "A"})
    assert (newer["state"], newer["results"]["label"]) == ("completed", {"a": "A", "b": "B"})


async def test_an_applications_own_body_describes_the_run_at_that_time(open_sandbox: OpenSandbox) -> None:
    def body(client: Client, run: Run, event: str) -> dict[str, Any]:
        return {"state": run.state, "revision": run.revision, "ended": run.ended_at}

    async with open_sandbox(one_step(fails=True), webhook_body=body) as sandbox, receiver() as listener:
        run = await run_to_end(sandbox, listener.url, events=BOTH)
        await sandbox.client.runs.rerun_failed(run)
        await sandbox.send_webhooks()
    assert [got.json for got in listener.requests] == [
        {"state": "running", "revision": 1, "ended": None},
        {"state": "failed", "revision": 1, "ended": "2030-01-01T12:00:00Z"},
    ]


@pytest.mark.parametrize(
    ("values", "made", "omitted"),
    [(1, 1, []), (1, 15_000, ["results"]), (15_000, 15_000, ["results", "input"])],
    ids=["small", "large results", "large input too"],
)
async def test_a_body_has_the_same_fields_whatever_its_size(
    values: int, made: int, omitted: list[str], open_sandbox: OpenSandbox
) -> None:
    large = Pipeline("one", Article)

    @large.step
    async def answer(text: str) -> str:
        return "é" * made

    async with open_sandbox(large) as sandbox, receiver() as listener:
        run = await sandbox.run("one", {"text": "é" * values}, webhook=Webhook(listener.url, events=BOTH))
        await sandbox.send_webhooks(Settings(public_url="https://retoma.example.com"))
    started, ended = [got.json["data"] for got in listener.requests]
    assert max(len(got.body) for got in listener.requests) < 20_000
    assert list(started) == list(ended)
    assert ended["omitted"] == omitted
    assert [name for name in ("results", "input") if ended[name] is None] == omitted
    assert ended["url"] == f"https://retoma.example.com/api/v1/runs/{run.id}"


async def test_without_a_public_address_links_are_paths(open_sandbox: OpenSandbox) -> None:
    async with open_sandbox(one_step()) as sandbox, receiver() as listener:
        run = await run_to_end(sandbox, listener.url)
        await sandbox.send_webhooks()
    assert listener.requests[0].json["data"]["url"] == f"/api/v1/runs/{run}"


async def test_results_that_could_never_fit_are_not_read(open_sandbox: OpenSandbox, rows_read: RowsRead) -> None:
    large = Pipeline("one")

    @large.step
    async def answer() -> str:
        return "x" * 200_000

    async with open_sandbox(large) as sandbox, receiver() as listener:
        await run_to_end(sandbox, listener.url)
        rows_read.clear()
        await sandbox.send_webhooks()
    payload = listener.requests[0].json["data"]
    assert (payload["results"], payload["omitted"]) == (None, ["results"])
    assert rows_read["list_results"] == []


async def test_the_start_webhook_has_no_results_however_late_it_is_sent(open_sandbox: OpenSandbox) -> None:
    async with open_sandbox(one_step()) as sandbox, receiver() as listener:
        await run_to_end(sandbox, listener.url, events=("run.started",))
        await sandbox.send_webhooks()
    payload = listener.requests[0].json["data"]
    assert (payload["state"], payload["results"], payload["omitted"]) == ("running", None, [])


async def test_for_a_day_after_a_rotation_both_secrets_sign(open_sandbox: OpenSandbox) -> None:
    async with open_sandbox(one_step()) as sandbox, receiver() as listener:
        for _ in range(2):
            await sandbox.client.start("one", webhook=Webhook(listener.url, events=["run.started"]))
        previous = await value(sandbox, "select secret from retoma.webhook_secrets")
        (endpoint,) = await sandbox.client.webhooks.list_endpoints()
        secret = await sandbox.client.webhooks.rotate_secret(endpoint.id)
        await sandbox.send_webhooks()
        now = await sandbox.clock.now()
        for each in (secret, previous):
            signing.verify(each, listener.requests[0].headers, listener.requests[0].body, now)
        await sandbox.clock.advance(timedelta(hours=25))
        await sandbox.client.start("one", webhook=Webhook(listener.url, events=["run.started"]))
        await sandbox.send_webhooks()
    signing.verify(secret, listener.requests[-1].headers, listener.requests[-1].body, now + timedelta(hours=25))
    assert len(listener.requests[-1].headers["webhook-signature"].split(" ")) == 1


@pytest.mark.parametrize("knows", ["the former secret", "the new secret"])
async def test_a_receiver_of_the_older_header_accepts_either_secret_while_one_is_rotated(
    knows: str, open_sandbox: OpenSandbox
) -> None:
    """It knows one secret and compares the whole header; a mismatch is answered with 401."""
    async with open_sandbox(one_step()) as sandbox, receiver() as there:
        await sandbox.client.start("one", webhook=Webhook(there.url, events=["run.started"]))
        secret = await value(sandbox, "select secret from retoma.webhook_secrets")
        (endpoint,) = await sandbox.client.webhooks.list_endpoints()
        new = await sandbox.client.webhooks.rotate_secret(endpoint.id)
        there.answer = accepts_only(secret if knows == "the former secret" else new)
        await send_until_done(sandbox, (await sandbox.client.runs.list())[0].id)
        (delivery,) = await sandbox.client.webhooks.list_deliveries()
    assert str(delivery.state) == "delivered"
    assert delivery.attempt == (1 if knows == "the former secret" else 2)


@pytest.mark.parametrize("knows", ["segredo antigo", "segredo novo"])
async def test_the_secret_of_the_settings_is_rotated_with_an_overlap(knows: str, open_sandbox: OpenSandbox) -> None:
    both = Settings(webhook_secret="segredo novo", webhook_previous_secret="segredo antigo")
    async with open_sandbox(one_step()) as sandbox, receiver() as there:
        run = await run_to_end(sandbox, there.url)
        there.answer = accepts_only(knows)
        for _ in range(2):
            await sandbox.send_webhooks(both)
            await sandbox.clock.advance(timedelta(seconds=5))
        assert str((await get_delivery(sandbox, run)).state) == "delivered"
    for got in there.requests:
        signing.verify(knows, standard(got.headers), got.body, verify_now(got))


@pytest.mark.parametrize("secret", ["segredo-do-canal", signing.generate_secret()], ids=["plain", "whsec_"])
async def test_the_reference_library_verifies_any_secret_of_the_settings(
    secret: str, open_sandbox: OpenSandbox, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with open_sandbox(one_step()) as sandbox, receiver() as listener:
        await run_to_end(sandbox, listener.url)
        await sandbox.send_webhooks(Settings(webhook_secret=secret))
    (got,) = listener.requests
    monkeypatch.setattr("standardwebhooks.webhooks.Webhook._Webhook__verify_timestamp", lambda *_: verify_now(got))
    library = Reference(signing.to_library_secret(secret))
    assert library.verify(got.body.decode(), got.headers)["type"] == "run.completed"


async def test_each_attempt_is_logged_with_its_run_url_and_next_step(
    open_sandbox: OpenSandbox, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level("INFO", "retoma.webhooks.sender")
    async with (
        open_sandbox(one_step()) as sandbox,
        receiver(respond_with(500), respond_with(200), respond_with(500), respond_with(500)) as listener,
    ):
        delivered = await run_to_end(sandbox, f"{listener.url}?token=canary")
        await send_until_done(sandbox, delivered)
        dead = await run_to_end(sandbox, f"{listener.url}?token=canary", retries=1)
        await send_until_done(sandbox, dead)
    lines: list[Any] = [line for line in caplog.records if line.name == "retoma.webhooks.sender"]
    assert [(line.levelname, line.event, line.run, line.attempt, line.status) for line in lines] == [
        ("WARNING", "webhook_failed", str(delivered), 1, 500),
        ("INFO", "webhook_delivered", str(delivered), 2, 200),
        ("WARNING", "webhook_failed", str(dead), 1, 500),
        ("ERROR", "webhook_dead", str(dead), 2, 500),
    ]
    assert {line.url for line in lines} == {f"{listener.url}?token=***"}
    assert all(2 <= line.retry_in_seconds <= 2.4 for line in (lines[0], lines[2]))
    assert all("500" in line.error for line in (lines[0], lines[2], lines[3]))


async def test_a_rotation_that_is_sent_twice_keeps_the_previous_secret(open_sandbox: OpenSandbox) -> None:
    async with open_sandbox(one_step()) as sandbox:
        await sandbox.client.start("one", webhook=Webhook("http://127.0.0.1:9/"))
        previous = await value(sandbox, "select secret from retoma.webhook_secrets")
        (endpoint,) = await sandbox.client.webhooks.list_endpoints()
        for _ in range(2):
            await deliveries.rotate_secret(sandbox.database, endpoint.id, None, "whsec_new", timedelta(hours=1))
        assert tuple((await rows(sandbox, "select secret, previous_secret from retoma.webhook_secrets"))[0]) == (
            "whsec_new",
            previous,
        )


async def test_only_webhooks_of_the_applications_own_pipelines_are_sent(open_sandbox: OpenSandbox) -> None:
    other = Pipeline("other")

    @other.step
    async def step() -> int:
        return 1

    async with open_sandbox(one_step()) as mine, open_sandbox(other) as theirs, receiver() as listener:
        await run_to_end(mine, listener.url)
        async with open_sender(theirs) as sender:
            assert await sender.send_due() == 0
        async with open_sender(mine) as sender:
            assert await sender.send_due() == 1


async def test_recorded_attempts_contain_no_secret(open_sandbox: OpenSandbox, caplog: pytest.LogCaptureFixture) -> None:
    async with (
        open_sandbox(one_step()) as sandbox,
        receiver(respond_with(302, location="http://127.0.0.1/")) as listener,
    ):
        run = await run_to_end(sandbox, listener.url + "?token=canary-1", retries=0)
        await sandbox.send_webhooks()
        secret = await value(sandbox, "select secret from retoma.webhook_secrets")
        delivery = await get_delivery(sandbox, run)
        log_messages = f"{delivery.error} {delivery.body} {delivery.attempts} {caplog.text}"
    assert "webhook_dead" in caplog.text
    assert "canary-1" not in log_messages
    assert secret not in log_messages


def accepts_only(secret: str) -> Callable[[ReceivedRequest], Responder]:
    """As a receiver that compares `X-Webhook-Signature` with the one signature that it computes."""

    def answer(got: ReceivedRequest) -> Responder:
        right = signing.sign_hex(secret, int(got.headers["x-webhook-timestamp"]), got.body)
        return respond_with(200 if got.headers["x-webhook-signature"] == right else 401)

    return answer


def standard(headers: dict[str, str]) -> dict[str, str]:
    return {name: text for name, text in headers.items() if not name.startswith("x-webhook-")}


def verify_now(got: Any) -> Any:
    """The reference library has no clock that a test could set."""
    return datetime.fromtimestamp(int(got.headers["webhook-timestamp"]), UTC)
