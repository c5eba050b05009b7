"""Notifications of the plugin: signed by the article's own site, once each, in order, and complete."""

from __future__ import annotations

import json
from datetime import UTC, datetime
from typing import Any
from uuid import UUID

import pytest

from retoma.errors import ProviderDown
from retoma_apps.autowriter.operations import notifications
from retoma_apps.providers.wordpress import Credentials, Event, WordPressSettings
from retoma_apps.providers.wordpress.notifications import MAX_BYTES, ROUTE
from retoma_apps.providers.wordpress.signature import sign_headers
from tests.apps.autowriter.samples import make_request
from tests.apps.autowriter.writer_app import WriterApp
from tests.engine.builders import value

SECRET, OTHER_SECRET = "key1.secret-of-the-site", "key2.secret-of-another-site"
KINDS = ("media_ok", "seo_applied", "done")


@pytest.fixture(autouse=True)
def _secrets(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("WORDPRESS_SECRET", SECRET)
    monkeypatch.setenv("WORDPRESS_SECRET_OUTRO", OTHER_SECRET)
    notifications._KEPT.clear()


def make_notification(run: UUID | None, sequence: int, kind: str, **changes: Any) -> bytes:
    body = {
        "event_id": f"event-{sequence}",
        "sequence": sequence,
        "idempotency_key": make_request().identity if run else None,
        "job_id": str(run) if run else None,
        "site_url": "https://blog.example",
        "blog_id": 1,
        "revision": 1,
        "kind": kind,
        "at": "2030-01-01T12:00:00+00:00",
        "detail": {},
    }
    return json.dumps(body | changes).encode()


async def send(writer_app: WriterApp, body: bytes, secret: str = SECRET) -> int:
    now = await writer_app.api.sandbox.clock.now()
    headers = sign_headers(Credentials.parse(secret), "POST", ROUTE, body, now)
    answer = await writer_app.api.post(ROUTE, key=None, content=body, headers=headers)
    return answer.status_code


async def list_kinds(writer_app: WriterApp, run: UUID) -> list[str]:
    return [event["kind"] for event in (await writer_app.show(run))["events"]]


async def test_events_are_shown_once_and_in_order(writer_app: WriterApp) -> None:
    run = (await writer_app.write()).id
    for sequence in (3, 1, 1, 2, 3):
        assert await send(writer_app, make_notification(run, sequence, KINDS[sequence - 1])) == 204
    assert await list_kinds(writer_app, run) == [*KINDS]


async def test_an_event_that_arrives_twice_takes_effect_once(writer_app: WriterApp) -> None:
    run = (await writer_app.write()).id
    for _ in range(2):
        assert await send(writer_app, make_notification(run, 1, "media_ok")) == 204
    assert await list_kinds(writer_app, run) == ["media_ok"]
    assert await send(writer_app, make_notification(run, 1, "done", event_id="other")) == 409


async def test_missing_events_are_asked_for(writer_app: WriterApp) -> None:
    run = (await writer_app.write()).id
    writer_app.blog.events = [make_event(sequence) for sequence in (1, 2, 3)]
    assert await send(writer_app, make_notification(run, 3, "done")) == 204
    assert await list_kinds(writer_app, run) == [*KINDS]


async def test_a_site_that_does_not_answer_delays_the_events_before_a_gap(
    writer_app: WriterApp, monkeypatch: pytest.MonkeyPatch
) -> None:
    run = (await writer_app.write()).id

    async def fail(key: str) -> None:
        raise ProviderDown("away")

    with monkeypatch.context() as patched:
        patched.setattr(writer_app.blog, "get_job", fail)
        assert await send(writer_app, make_notification(run, 3, "done")) == 204
        assert (await writer_app.api.post(f"/autowriter/jobs/{run}/refresh")).status_code == 503
    assert await list_kinds(writer_app, run) == []
    assert await send(writer_app, make_notification(run, 1, "media_ok")) == 204
    assert await send(writer_app, make_notification(run, 2, "seo_applied")) == 204
    assert await list_kinds(writer_app, run) == [*KINDS]


async def test_an_article_whose_notifications_never_arrive_is_brought_up_to_date_by_asking(
    writer_app: WriterApp,
) -> None:
    run = (await writer_app.write()).id
    writer_app.blog.events = [make_event(sequence) for sequence in (1, 2, 3)]
    answer = await writer_app.api.post(f"/autowriter/jobs/{run}/refresh")
    assert [event["kind"] for event in answer.json()["events"]] == [*KINDS]


async def test_the_events_of_a_blog_are_erased_with_it(writer_app: WriterApp) -> None:
    run, sandbox = await writer_app.write(), writer_app.api.sandbox
    for sequence in (1, 3):
        assert await send(writer_app, make_notification(run.id, sequence, KINDS[sequence - 1])) == 204
    await sandbox.client.runs.cancel(run.id)
    await sandbox.client.retention.erase_tenant(make_request().blog_id)
    assert await value(sandbox, "select count(*) from retoma.inbound_events") == 0


async def test_a_notification_with_a_wrong_signature_is_refused(writer_app: WriterApp) -> None:
    run = (await writer_app.write()).id
    body = make_notification(run, 1, "done")
    assert await send(writer_app, body, "key1.another-secret") == 401
    assert (await writer_app.api.post(ROUTE, key=None, content=body)).status_code == 401
    assert await list_kinds(writer_app, run) == []


async def test_the_secret_of_another_site_is_not_enough(writer_app: WriterApp) -> None:
    await writer_app.client.tenants.set_profile("outro", {"name": "Outro", "site": "Outro"})
    run = (await writer_app.write()).id
    assert await send(writer_app, make_notification(run, 1, "done"), OTHER_SECRET) == 401
    assert await send(writer_app, make_notification(None, 0, "ping"), OTHER_SECRET) == 204
    assert await list_kinds(writer_app, run) == []


async def test_a_notification_about_an_unknown_article_is_refused(writer_app: WriterApp) -> None:
    run = (await writer_app.write()).id
    assert await send(writer_app, make_notification(run, 1, "done", job_id="nonsense")) == 404
    assert await send(writer_app, make_notification(run, 1, "done", idempotency_key="0" * 64)) == 404
    assert await send(writer_app, b"{}") == 422


def make_event(sequence: int) -> Event:
    kind: Any = KINDS[sequence - 1]
    return Event(f"event-{sequence}", sequence, kind, 1, datetime(2030, 1, 1, 12, tzinfo=UTC))


@pytest.mark.parametrize("at", ["0001-01-01T00:00:00+14:00", "9999-12-31T23:59:59-14:00"])
async def test_an_event_of_an_impossible_time_is_refused(writer_app: WriterApp, at: str) -> None:
    run = (await writer_app.write()).id
    assert await send(writer_app, make_notification(run, 1, "done", at=at)) == 422
    assert await list_kinds(writer_app, run) == []


@pytest.mark.parametrize("number", [float("nan"), float("inf")])
async def test_an_event_with_a_number_that_is_not_json_is_refused(writer_app: WriterApp, number: float) -> None:
    run = (await writer_app.write()).id
    assert await send(writer_app, make_notification(run, 1, "done", detail={"a": [number]})) == 422
    assert await list_kinds(writer_app, run) == []


async def test_a_notification_has_at_most_64_kib(writer_app: WriterApp) -> None:
    for size in (MAX_BYTES + 1, 20_000_000):
        answer = await writer_app.api.post(ROUTE, key=None, content=b" " * size)
        assert (answer.status_code, answer.json()["code"]) == (413, "BODY_TOO_LARGE")
    run = (await writer_app.write()).id
    rest = MAX_BYTES - len(make_notification(run, 1, "done", detail={"text": ""}))
    assert await send(writer_app, make_notification(run, 1, "done", detail={"text": "x" * rest})) == 204


async def test_requests_that_are_not_signed_load_the_secrets_of_a_site_once(
    writer_app: WriterApp, monkeypatch: pytest.MonkeyPatch
) -> None:
    await writer_app.client.tenants.set_profile("outro", {"name": "Outro", "site": "Outro"})
    loaded: list[str] = []
    load = WordPressSettings.for_site

    def count(site: str) -> WordPressSettings:
        loaded.append(site)
        return load(site)

    monkeypatch.setattr(WordPressSettings, "for_site", count)
    for _ in range(5):
        assert (await writer_app.api.post(ROUTE, key=None, content=b"{}")).status_code == 401
    assert sorted(loaded) == ["", "Outro"]
