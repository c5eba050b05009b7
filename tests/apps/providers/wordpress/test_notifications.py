"""A notification is read only if the site signed it recently with a secret that we accept."""

from __future__ import annotations

import json
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

from retoma.errors import BadSignature, InvalidInput
from retoma_apps.providers.wordpress import Credentials, read_notification
from retoma_apps.providers.wordpress.notifications import ROUTE
from retoma_apps.providers.wordpress.signature import sign_headers

NOW = datetime(2026, 11, 18, 12, tzinfo=UTC)
OLD, NEW = Credentials("aw_old", "secret of old"), Credentials("aw_new", "secret of new")


def make_body(**changes: Any) -> bytes:
    values = {
        "event_id": "0b1e9c2e-0000-4000-8000-000000000000",
        "sequence": 3,
        "idempotency_key": "ab" * 32,
        "job_id": "job-1",
        "site_url": "https://blog.example/",
        "blog_id": 1,
        "revision": 2,
        "kind": "done",
        "at": "2026-11-18T12:00:00Z",
        "detail": {"post_id": 7},
    }
    return json.dumps(values | changes).encode()


def sign(body: bytes, credentials: Credentials = OLD, at: datetime = NOW) -> dict[str, str]:
    return sign_headers(credentials, "POST", ROUTE, body, at)


@pytest.mark.parametrize("signer", [OLD, NEW])
def test_a_notification_signed_with_an_accepted_secret_is_read(signer: Credentials) -> None:
    body = make_body()
    found = read_notification([NEW, OLD], sign(body, signer), body, NOW)
    assert (found.sequence, found.kind, found.detail, found.at) == (3, "done", {"post_id": 7}, NOW)


def test_a_ping_has_no_job() -> None:
    body = make_body(kind="ping", sequence=0, idempotency_key=None, job_id=None, revision=0, detail={})
    assert read_notification([OLD], sign(body), body, NOW).kind == "ping"


def test_headers_may_have_any_case() -> None:
    body = make_body()
    headers = {name.upper(): value for name, value in sign(body).items()}
    assert read_notification([OLD], headers, body, NOW).sequence == 3


@pytest.mark.parametrize(
    ("headers", "body"),
    [
        pytest.param({}, make_body(), id="unsigned"),
        pytest.param(sign(make_body(), NEW), make_body(), id="unknown key"),
        pytest.param(sign(make_body(), Credentials("aw_old", "another")), make_body(), id="another secret"),
        pytest.param(sign(make_body()), make_body(sequence=4), id="another body"),
        pytest.param(sign(make_body(), at=NOW - timedelta(seconds=301)), make_body(), id="old"),
        pytest.param(sign(make_body(), at=NOW + timedelta(seconds=301)), make_body(), id="future"),
        pytest.param(sign(make_body()) | {"x-autowriter-timestamp": "é"}, make_body(), id="no time"),
        pytest.param(sign(make_body()) | {"x-autowriter-signature": "é\udc80"}, make_body(), id="not ASCII"),
        pytest.param(sign_headers(OLD, "POST", "/other", make_body(), NOW), make_body(), id="another route"),
    ],
)
def test_a_notification_that_is_not_signed_as_it_should_be_is_refused(headers: dict[str, str], body: bytes) -> None:
    with pytest.raises(BadSignature):
        read_notification([OLD], headers, body, NOW)


def test_a_notification_of_more_than_64_kib_is_refused() -> None:
    body = make_body(detail={"text": "x" * 65_536})
    with pytest.raises(InvalidInput, match="65536"):
        read_notification([OLD], sign(body), body, NOW)


@pytest.mark.parametrize("body", [b"{", b"[]", make_body(kind="unknown"), make_body(sequence=-1), make_body(at="soon")])
def test_a_signed_body_of_another_form_is_refused(body: bytes) -> None:
    with pytest.raises(InvalidInput, match="the notification is not valid"):
        read_notification([OLD], sign(body), body, NOW)
