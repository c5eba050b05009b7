"""What is sent, how it is signed, and that it says the same at every attempt."""

from __future__ import annotations

import json
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest
from standardwebhooks.webhooks import Webhook as Reference

from retoma import Client, GiveUp, Pipeline, Retry, Webhook, signing
from retoma.records import Run
from retoma.settings import Settings
from retoma.store import deliveries
from tests.conftest import OpenSandbox, RowsRead
from tests.engine.builders import rows, value
from tests.receiver import receiver, says
from tests.webhooks.builders import BOTH, a_sender, ended_run, one_step, only


async def test_a_webhook_tells_what_came_out(open_sandbox: OpenSandbox) -> None:
    async with open_sandbox(one_step()) as sandbox, receiver() as there:
        run = await ended_run(sandbox, there.url)
        await sandbox.send_webhooks(Settings(public_url="https://retoma.example.com/"))
    (got,) = there.got
    assert (got.method, got.path, got.headers["content-type"]) == ("POST", "/hook", "application/json")
    assert got.headers["user-agent"].startswith("Retoma/")
    assert got.json == {
        "type": "run.completed",
        "timestamp": "2030-01-01T12:00:00Z",
        "data": {
            "run": str(run),
            "tenant": "default",
            "pipeline": "one",
            "state": "completed",
            "seq": 1,
            "url": f"https://retoma.example.com/api/v1/runs/{run}",
            "input": {},
            "results": {"answer": 42},
        },
    }


async def test_a_webhook_of_a_failed_run_tells_what_failed(open_sandbox: OpenSandbox) -> None:
    async with open_sandbox(one_step(fails=True)) as sandbox, receiver() as there:
        await ended_run(sandbox, there.url)
        await sandbox.send_webhooks()
    told = there.got[0].json["data"]
    assert (told["state"], told["tenant"]) == ("failed", "default")
    assert told["error"] == {"step": "answer", "code": "GAVE_UP", "message": "no more"}


async def test_of_very_many_failures_the_last_is_told(open_sandbox: OpenSandbox) -> None:
    async with open_sandbox(one_step(fails=True)) as sandbox, receiver() as there:
        run = await ended_run(sandbox, there.url)
        await rows(
            sandbox,
            "insert into retoma.events (run, at, revision, kind, step, data) "
            "select $1, retoma.now(), 1, 'failure', 'other', json_build_object('message', n) "
            "from generate_series(1, 1001) n",
            run,
        )
        await sandbox.send_webhooks()
    assert there.got[0].json["data"]["error"] == {"step": "other", "message": "1001"}


async def test_what_is_signed_is_what_is_sent(open_sandbox: OpenSandbox) -> None:
    async with open_sandbox(one_step()) as sandbox, receiver() as there:
        run = await ended_run(sandbox, there.url)
        await sandbox.send_webhooks()
        delivery, now = await only(sandbox, run), await sandbox.clock.now()
        secret = await value(sandbox, "select secret from retoma.webhook_secrets")
    (got,) = there.got
    assert signing.verify(secret, got.headers, got.body, now) == str(delivery.id)
    older = {name: text for name, text in got.headers.items() if not name.startswith("webhook-")}
    signing.verify(secret, older, got.body, now, older=True)
    assert got.body.decode() == delivery.body


async def test_the_reference_library_accepts_it(open_sandbox: OpenSandbox, monkeypatch: pytest.MonkeyPatch) -> None:
    async with open_sandbox(one_step()) as sandbox, receiver() as there:
        await ended_run(sandbox, there.url)
        await sandbox.send_webhooks()
        secret = await value(sandbox, "select secret from retoma.webhook_secrets")
        monkeypatch.setattr(
            "standardwebhooks.webhooks.Webhook._Webhook__verify_timestamp", lambda *_: fresh(there.got[0])
        )
    assert Reference(secret).verify(there.got[0].body.decode(), there.got[0].headers)["type"] == "run.completed"


async def test_the_setting_signs_in_place_of_the_endpoints_secret(open_sandbox: OpenSandbox) -> None:
    async with open_sandbox(one_step()) as sandbox, receiver() as there:
        await ended_run(sandbox, there.url)
        await sandbox.send_webhooks(Settings(webhook_secret="segredo"))
        now = await sandbox.clock.now()
    (got,) = there.got
    signing.verify("segredo", got.headers, got.body, now)
    signing.verify(
        "segredo",
        {name: got.headers[name] for name in ("x-webhook-timestamp", "x-webhook-signature")},
        got.body,
        now,
        older=True,
    )


async def test_a_wrong_secret_in_the_settings_is_told_before_anything_is_sent(open_sandbox: OpenSandbox) -> None:
    async with open_sandbox(one_step()) as sandbox:
        with pytest.raises(ValueError, match="at least 24 bytes"):
            await sandbox.send_webhooks(Settings(webhook_secret="whsec_short"))


async def test_every_attempt_has_the_same_id_and_body_and_a_timestamp_of_its_own(open_sandbox: OpenSandbox) -> None:
    async with open_sandbox(one_step()) as sandbox, receiver(says(500), says(500)) as there:
        await ended_run(sandbox, there.url)
        for _ in range(3):
            await sandbox.send_webhooks()
            await sandbox.clock.advance(timedelta(seconds=10))
    assert len(there.got) == 3
    assert len({(got.body, got.headers["webhook-id"]) for got in there.got}) == 1
    assert len({got.headers["webhook-timestamp"] for got in there.got}) == 3
    assert len({got.headers["webhook-signature"] for got in there.got}) == 3


async def test_the_body_is_kept_before_the_first_attempt_and_never_made_again(open_sandbox: OpenSandbox) -> None:
    made: list[str] = []

    async def body(client: Client, run: Run, event: str) -> dict[str, Any]:
        made.append(event)
        return {"id_roteiro": 7, "times": len(made), "state": run.state}

    async with open_sandbox(one_step(), webhook_body=body) as sandbox, receiver(says(500)) as there:
        run = await ended_run(sandbox, there.url)
        await sandbox.send_webhooks()
        kept = (await only(sandbox, run)).body
        await sandbox.clock.advance(timedelta(seconds=10))
        await sandbox.send_webhooks()
    assert made == ["run.completed"]
    assert [got.body.decode() for got in there.got] == [kept, kept]
    assert json.loads(kept or "") == {"id_roteiro": 7, "times": 1, "state": "completed"}


async def test_a_body_that_cannot_be_made_is_tried_again_and_says_why(open_sandbox: OpenSandbox) -> None:
    made: list[str] = []

    def body(client: Client, run: Run, event: str) -> dict[str, Any]:
        made.append(event)
        if len(made) == 1:
            raise KeyError("images")
        return {"ok": True}

    async with open_sandbox(one_step(), webhook_body=body) as sandbox, receiver() as there:
        run = await ended_run(sandbox, there.url)
        await sandbox.send_webhooks()
        first = await only(sandbox, run)
        assert (str(first.state), first.error, there.got) == ("due", "its body cannot be made: KeyError: 'images'", [])
        await sandbox.clock.advance(timedelta(seconds=10))
        await sandbox.send_webhooks()
    assert there.got[0].json == {"ok": True}


async def test_an_end_is_told_as_it_was_though_the_run_was_made_anew_before_it_is_sent(
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

    async with open_sandbox(pipeline) as sandbox, receiver() as there:
        run = await ended_run(sandbox, there.url)
        broken.clear()
        await sandbox.clock.advance(timedelta(minutes=1))
        await sandbox.client.rerun_failed(run)
        await sandbox.work()
        await sandbox.send_webhooks()
    former, newer = [got.json["data"] for got in there.got]
    assert (former["state"], former["results"]["label"]) == ("completed_with_errors", {"a": "A"})
    assert (newer["state"], newer["results"]["label"]) == ("completed", {"a": "A", "b": "B"})


async def test_an_applications_own_body_is_of_the_run_as_it_was(open_sandbox: OpenSandbox) -> None:
    def body(client: Client, run: Run, event: str) -> dict[str, Any]:
        return {"state": run.state, "revision": run.revision, "ended": run.ended_at}

    async with open_sandbox(one_step(fails=True), webhook_body=body) as sandbox, receiver() as there:
        run = await ended_run(sandbox, there.url, events=BOTH)
        await sandbox.client.rerun_failed(run)
        await sandbox.send_webhooks()
    assert [got.json for got in there.got] == [
        {"state": "running", "revision": 1, "ended": None},
        {"state": "failed", "revision": 1, "ended": "2030-01-01T12:00:00Z"},
    ]


async def test_results_that_are_too_large_are_left_out(open_sandbox: OpenSandbox) -> None:
    large = Pipeline("one")

    @large.step
    async def answer() -> str:
        return "é" * 15_000

    async with open_sandbox(large) as sandbox, receiver() as there:
        await ended_run(sandbox, there.url)
        await sandbox.send_webhooks(Settings(public_url="https://retoma.example.com"))
    assert len(there.got[0].body) < 20_000
    assert set(there.got[0].json["data"]) == {"run", "tenant", "pipeline", "state", "seq", "url", "input"}


async def test_results_that_could_never_fit_are_not_even_read(open_sandbox: OpenSandbox, rows_read: RowsRead) -> None:
    large = Pipeline("one")

    @large.step
    async def answer() -> str:
        return "x" * 200_000

    async with open_sandbox(large) as sandbox, receiver() as there:
        await ended_run(sandbox, there.url)
        rows_read.clear()
        await sandbox.send_webhooks()
    assert "results" not in there.got[0].json["data"]
    assert rows_read["results_of_run"] == []


async def test_the_word_of_the_start_has_no_results_however_late_it_is_sent(open_sandbox: OpenSandbox) -> None:
    async with open_sandbox(one_step()) as sandbox, receiver() as there:
        await ended_run(sandbox, there.url, events=("run.started",))
        await sandbox.send_webhooks()
    assert there.got[0].json["data"]["state"] == "running"
    assert "results" not in there.got[0].json["data"]


async def test_for_a_day_after_a_rotation_both_secrets_sign(open_sandbox: OpenSandbox) -> None:
    async with open_sandbox(one_step()) as sandbox, receiver() as there:
        for _ in range(2):
            await sandbox.client.start("one", webhook=Webhook(there.url, events=["run.started"]))
        former = await value(sandbox, "select secret from retoma.webhook_secrets")
        (endpoint,) = await sandbox.client.endpoints()
        secret = await sandbox.client.rotate_secret(endpoint.id)
        await sandbox.send_webhooks()
        now = await sandbox.clock.now()
        for each in (secret, former):
            signing.verify(each, there.got[0].headers, there.got[0].body, now)
        await sandbox.clock.advance(timedelta(hours=25))
        await sandbox.client.start("one", webhook=Webhook(there.url, events=["run.started"]))
        await sandbox.send_webhooks()
    signing.verify(secret, there.got[-1].headers, there.got[-1].body, now + timedelta(hours=25))
    assert len(there.got[-1].headers["webhook-signature"].split(" ")) == 1


async def test_a_rotation_that_is_sent_twice_keeps_the_former_secret(open_sandbox: OpenSandbox) -> None:
    async with open_sandbox(one_step()) as sandbox:
        await sandbox.client.start("one", webhook=Webhook("http://127.0.0.1:9/"))
        former = await value(sandbox, "select secret from retoma.webhook_secrets")
        (endpoint,) = await sandbox.client.endpoints()
        for _ in range(2):
            await deliveries.rotate(sandbox.database, endpoint.id, None, "whsec_new", timedelta(hours=1))
        assert tuple((await rows(sandbox, "select secret, former from retoma.webhook_secrets"))[0]) == (
            "whsec_new",
            former,
        )


async def test_only_webhooks_of_the_applications_own_pipelines_are_sent(open_sandbox: OpenSandbox) -> None:
    other = Pipeline("other")

    @other.step
    async def step() -> int:
        return 1

    async with open_sandbox(one_step()) as mine, open_sandbox(other) as theirs, receiver() as there:
        await ended_run(mine, there.url)
        async with a_sender(theirs) as sender:
            assert await sender.send_due() == 0
        async with a_sender(mine) as sender:
            assert await sender.send_due() == 1


async def test_nothing_secret_is_in_what_is_recorded(
    open_sandbox: OpenSandbox, caplog: pytest.LogCaptureFixture
) -> None:
    async with open_sandbox(one_step()) as sandbox, receiver(says(302, location="http://127.0.0.1/")) as there:
        run = await ended_run(sandbox, there.url + "?token=canary-1", retries=0)
        await sandbox.send_webhooks()
        secret = await value(sandbox, "select secret from retoma.webhook_secrets")
        delivery = await only(sandbox, run)
        said = f"{delivery.error} {delivery.body} {delivery.attempts} {caplog.text}"
    assert "given up" in caplog.text
    assert "canary-1" not in said
    assert secret not in said


def fresh(got: Any) -> Any:
    """The reference library has no clock that a test could set."""
    return datetime.fromtimestamp(int(got.headers["webhook-timestamp"]), UTC)
