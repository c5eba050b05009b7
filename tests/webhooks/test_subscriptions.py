"""URLs that have subscribed to events of all runs, reviews and stuck runs among them."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from datetime import timedelta
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import pytest

from retoma import App, Pipeline, Settings, Webhook, signing
from retoma.define.file import File
from retoma.engine import watchdog
from retoma.errors import Conflict, InvalidInput, NotFound, UnsafeUrl
from retoma.files import FileSettings, create_file_store
from retoma.outgoing import Guard
from retoma.reviews import Decision
from retoma.store.database import Database
from tests.conftest import OpenSandbox, empty_database
from tests.engine.builders import HEARTBEAT_TIMEOUT, rows, value
from tests.receiver import receiver
from tests.server.api import Api, an_api
from tests.webhooks.builders import one_step

PUBLIC = "https://retoma.example.com"
URL = "http://127.0.0.1:9/hook"


async def test_a_subscriber_gets_every_run_of_its_tenant(open_sandbox: OpenSandbox) -> None:
    async with open_sandbox(one_step()) as sandbox, receiver() as listener:
        await sandbox.client.webhooks.subscribe(listener.url, ["run.started", "run.ended"], tenant="blog")
        mine = (await sandbox.run("one", tenant="blog")).id
        await sandbox.run("one", tenant="shop")
        await sandbox.send_webhooks()
    assert [(got.json["type"], got.json["data"]["run"], got.json["data"]["seq"]) for got in listener.requests] == [
        ("run.started", str(mine), 1),
        ("run.completed", str(mine), 2),
    ]


async def test_a_subscriber_of_all_tenants_gets_runs_of_all(open_sandbox: OpenSandbox) -> None:
    async with open_sandbox(one_step()) as sandbox, receiver() as listener:
        made = await sandbox.client.webhooks.subscribe(listener.url, ["run.completed"])
        for tenant in ("blog", "shop"):
            await sandbox.run("one", tenant=tenant)
        await sandbox.send_webhooks()
        now = await sandbox.clock.now()
        seen_by_a_tenant = await sandbox.client.webhooks.list_deliveries(tenant="blog")
        seen_by_nobodys = await sandbox.client.webhooks.list_deliveries(tenant="unknown")
    assert {got.json["data"]["tenant"] for got in listener.requests} == {"blog", "shop"}
    assert (made.tenant, seen_by_a_tenant, seen_by_nobodys) == ("*", [], [])
    signing.verify(made.secret or "", listener.requests[0].headers, listener.requests[0].body, now)


async def test_a_url_that_the_run_also_names_is_notified_once(open_sandbox: OpenSandbox) -> None:
    async with open_sandbox(one_step()) as sandbox:
        await sandbox.client.webhooks.subscribe(URL, ["run.ended"], tenant="default")
        await sandbox.run("one", webhook=Webhook(URL))
        assert len(await sandbox.client.webhooks.list_deliveries()) == 1


async def test_deliveries_to_subscribers_are_enqueued_with_the_change(open_sandbox: OpenSandbox) -> None:
    async with open_sandbox(one_step()) as sandbox:
        await sandbox.client.webhooks.subscribe(URL, ["run.completed"])
        run = (await sandbox.run("one")).id
        written = """
            select count(distinct xmin::text)
              from (select xmin from retoma.runs where id = $1
                    union all select xmin from retoma.deliveries where run = $1) as rows
        """
        assert await value(sandbox, written, run) == 1
        assert await value(sandbox, "select count(*) from retoma.deliveries") == 1


async def test_a_removed_subscription_gets_nothing_more(open_sandbox: OpenSandbox) -> None:
    async with open_sandbox(one_step()) as sandbox:
        made = await sandbox.client.webhooks.subscribe(URL, ["run.ended"])
        await sandbox.client.webhooks.unsubscribe(made.id)
        await sandbox.run("one")
        assert (
            await sandbox.client.webhooks.list_deliveries(),
            await sandbox.client.webhooks.list_subscriptions(),
        ) == ([], [])
        with pytest.raises(NotFound):
            await sandbox.client.webhooks.unsubscribe(made.id)


async def test_the_same_url_again_replaces_its_events_and_keeps_its_secret(open_sandbox: OpenSandbox) -> None:
    async with open_sandbox(one_step()) as sandbox:
        first = await sandbox.client.webhooks.subscribe(URL, ["run.started"])
        again = await sandbox.client.webhooks.subscribe(URL, ["run.stuck"])
        assert (again.id, again.events, again.secret) == (first.id, ("run.stuck",), first.secret)
        listed = await sandbox.client.webhooks.list_subscriptions()
        assert [hasattr(one, "secret") for one in listed] == [False]


async def test_an_invalid_subscription_is_rejected(open_sandbox: OpenSandbox, monkeypatch: pytest.MonkeyPatch) -> None:
    async with open_sandbox(one_step()) as sandbox:
        with pytest.raises(InvalidInput, match=r"did you mean 'review\.opened'"):
            await sandbox.client.webhooks.subscribe(URL, ["review.opend"])
        monkeypatch.setattr("retoma.client.webhooks.MAX_SUBSCRIPTIONS", 0)
        with pytest.raises(Conflict, match="remove one"):
            await sandbox.client.webhooks.subscribe(URL, ["run.ended"])
        sandbox.client._core.guard = Guard()
        with pytest.raises(UnsafeUrl, match="RETOMA_ALLOW_HOSTS"):
            await sandbox.client.webhooks.subscribe(URL, ["run.ended"])


async def test_a_stuck_run_is_reported_with_its_cause(open_sandbox: OpenSandbox) -> None:
    async with (
        open_sandbox(one_step()) as sandbox,
        receiver() as listener,
        receiver() as requested,
        receiver() as usual,
    ):
        await sandbox.client.webhooks.subscribe(listener.url, ["run.stuck"])
        runs = [
            (await sandbox.client.start("one", webhook=hook)).id
            for hook in (Webhook(requested.url, events=["run.stuck"]), Webhook(usual.url))
        ]
        await sandbox.clock.advance(timedelta(minutes=10))
        await watchdog.check_due_runs(sandbox.database, HEARTBEAT_TIMEOUT)
        await sandbox.send_webhooks()
    assert {got.json["data"]["run"] for got in listener.requests} == set(map(str, runs))
    payload = listener.requests[0].json
    assert (payload["type"], payload["data"]["state"], payload["data"]["stuck"]["cause"]) == (
        "run.stuck",
        "stuck",
        "no_worker",
    )
    assert "start one: retoma worker" in payload["data"]["stuck"]["explanation"]
    assert (len(requested.requests), usual.requests) == (1, [])


@asynccontextmanager
async def open_review_server(database: Database, folder: Path) -> AsyncIterator[tuple[Api, Any]]:
    """A server whose runs have a review of a recording."""
    await empty_database(database)
    files = create_file_store(FileSettings(home=folder, files_url=None))
    pipeline = Pipeline("talk")

    @pipeline.step
    async def recording() -> File:
        return await files.save(b"RIFF of a talk", name="talk.wav")

    pipeline.review("approved", of=recording, send_back_to=[recording])
    application = App("talks", pipelines=[pipeline], files=files)
    async with an_api(database, application=application) as api, receiver() as listener:
        yield api, listener


async def test_an_opened_review_is_reported_with_links_that_need_no_key(database: Database, tmp_path: Path) -> None:
    async with open_review_server(database, tmp_path) as (api, there):
        await api.client.webhooks.subscribe(there.url, ["review.opened"])
        run = (await api.client.start("talk")).id
        await api.sandbox.work()
        assert await value(api.sandbox, "select count(*) from retoma.pending_webhook_events") == 1
        await api.sandbox.send_webhooks(Settings(public_url=PUBLIC))
        (review,) = await api.client.reviews.list()
        (got,) = there.requests
        reported = got.json["data"]["review"]
        (file,) = reported["files"]
        link = file["url"].removeprefix(PUBLIC)
        served = await api.get(link, key=None)
        part = await api.get(link, key=None, headers={"Range": "bytes=0-3"})
        refused = [(await api.get(wrong, key=None)).status_code for wrong in tamper(link)]
        await api.sandbox.clock.advance(timedelta(hours=25))
        expired = await api.get(link, key=None)
    assert (got.json["type"], got.json["data"]["run"]) == ("review.opened", str(run))
    assert (reported["id"], reported["step"], reported["item"], reported["revision"]) == (
        str(review.id),
        "approved",
        "",
        1,
    )
    assert reported["review_url"] == f"{PUBLIC}/reviews/{review.id}"
    assert (file["step"], file["name"], file["size"]) == ("recording", "talk.wav", 14)
    assert (served.status_code, served.content, part.content) == (200, b"RIFF of a talk", b"RIFF")
    assert refused == [404, 404, 404, 401, 404]
    assert (expired.status_code, expired.json()["code"]) == (410, "GONE")


def tamper(link: str) -> list[str]:
    """Another signature, a later end, another run, no signature at all, and a file of which there is no link."""
    path, query = link.split("?")
    expires = int(query.split("&")[0].removeprefix("expires="))
    digest = urlsplit(path).path.rpartition("/")[2]
    return [
        f"{path}?expires={expires}&signature={'0' * 64}",
        link.replace(str(expires), str(expires + 1)),
        link.replace(path, f"/api/v1/runs/01a1e5bf-11be-75bd-a0ef-d9c6878b405b/files/{digest}"),
        path,
        link.replace(digest, "a" * 64),
    ]


async def test_the_event_of_a_review_is_written_in_the_transaction_that_opens_it(
    database: Database, tmp_path: Path
) -> None:
    async with open_review_server(database, tmp_path) as (api, there):
        await api.client.webhooks.subscribe(there.url, ["review.opened"])
        await api.client.start("talk")
        await api.sandbox.work()
        written = """
            select count(*), count(distinct xmin::text)
              from (select xmin from retoma.events where kind = 'review'
                    union all select xmin from retoma.pending_webhook_events) as rows
        """
        (found,) = await rows(api.sandbox, written)
    assert tuple(found) == (2, 1)


async def test_each_round_of_a_review_is_reported_once_and_in_order(database: Database, tmp_path: Path) -> None:
    async with open_review_server(database, tmp_path) as (api, there):
        run = (await api.client.start("talk", webhook=Webhook(there.url, events=["review.opened", "run.ended"]))).id
        await api.sandbox.work()
        for action in ("send_back", "approve"):
            (review,) = await api.client.reviews.list(run=run)
            await api.client.reviews.decide(review.id, Decision(action, by="ana", notes="slower"))
            await api.sandbox.clock.advance(timedelta(minutes=1))
            await api.sandbox.work()
        await api.sandbox.send_webhooks()
    outcomes = [(got.json["type"], got.json["data"]["seq"]) for got in there.requests]
    assert outcomes == [("review.opened", 1), ("review.opened", 2), ("run.completed", 3)]


async def test_reviews_of_runs_without_subscribers_are_not_announced(database: Database, tmp_path: Path) -> None:
    async with open_review_server(database, tmp_path) as (api, there):
        await api.client.webhooks.subscribe(there.url, ["run.ended"])
        await api.client.start("talk", webhook=Webhook(there.url))
        await api.sandbox.work()
        assert await rows(api.sandbox, "select * from retoma.pending_webhook_events") == []


async def test_subscriptions_over_http_are_those_of_the_keys_tenant(database: Database) -> None:
    await empty_database(database)
    async with an_api(database) as api:
        blog = await api.make_key("deliveries:read", "deliveries:write", "runs:read", tenant="blog")
        shop = await api.make_key("deliveries:read", "deliveries:write", "runs:read", tenant="shop")
        blind = await api.make_key("deliveries:write", tenant="blog", name="blind")
        body = {"url": f"{URL}?token=CANARY", "events": ["review.opened"]}
        made = await api.post("/api/v1/webhooks", json=body, key=blog)
        listed = (await api.get("/api/v1/webhooks", key=blog)).json()["webhooks"]
        path = f"/api/v1/webhooks/{made.json()['id']}"
        answers = [
            await api.get("/api/v1/webhooks", key=shop),
            await api.call("DELETE", path, key=shop),
            await api.post("/api/v1/webhooks", json=body | {"tenant": "blog"}, key=shop),
            await api.post("/api/v1/webhooks", json=body, key=blind),
            await api.call("DELETE", path, key=blog),
        ]
        everyone = await api.post("/api/v1/webhooks", json=body)
    assert (made.status_code, made.json()["secret"][:6]) == (201, "whsec_")
    assert [(one["tenant"], one["url"], one["events"]) for one in listed] == [
        ("blog", f"{URL}?token=***", ["review.opened"])
    ]
    assert "secret" not in listed[0]
    assert answers[0].json()["webhooks"] == []
    assert [answer.status_code for answer in answers[1:]] == [404, 403, 403, 204]
    assert everyone.json()["tenant"] == "*"
