"""Signatures, verified with the reference library of Standard Webhooks and against tampering."""

from __future__ import annotations

import hashlib
import hmac
import json
from datetime import UTC, datetime, timedelta

import pytest
from standardwebhooks.webhooks import Webhook as Reference
from standardwebhooks.webhooks import WebhookVerificationError

from retoma import signing
from retoma.errors import BadSignature

BODY = '{"type":"run.completed","data":{"título":"chá"}}'.encode()
SECRET, OTHER = signing.generate_secret(), signing.generate_secret()
OLD_STYLE = "segredo-do-webhook"


def test_the_reference_library_accepts_what_we_sign() -> None:
    now = datetime.now(UTC)
    headers = signing.sign_headers([SECRET], "msg_1", now, BODY)
    assert Reference(SECRET).verify(BODY.decode(), headers) == json.loads(BODY)


def test_we_sign_as_the_reference_library_does() -> None:
    at = datetime(2026, 11, 15, 12, tzinfo=UTC)
    theirs = Reference(SECRET).sign(msg_id="msg_1", timestamp=at, data=BODY.decode())
    assert signing.sign_standard(SECRET, "msg_1", int(at.timestamp()), BODY) == theirs


def test_while_a_secret_is_rotated_both_are_accepted_by_the_reference_library() -> None:
    headers = signing.sign_headers([SECRET, OTHER], "msg_1", datetime.now(UTC), BODY)
    for secret in (SECRET, OTHER):
        Reference(secret).verify(BODY.decode(), headers)
    with pytest.raises(WebhookVerificationError):
        Reference(signing.generate_secret()).verify(BODY.decode(), headers)


def test_the_older_header_is_the_hex_of_timestamp_and_body() -> None:
    at = datetime(2026, 11, 15, 12, tzinfo=UTC)
    headers = signing.sign_headers([OLD_STYLE], "msg_1", at, BODY)
    timestamp = headers["x-webhook-timestamp"]
    expected = hmac.new(OLD_STYLE.encode(), f"{timestamp}.".encode() + BODY, hashlib.sha256).hexdigest()
    assert (timestamp, headers["x-webhook-signature"]) == (str(int(at.timestamp())), expected)


@pytest.mark.parametrize("family", ["webhook-", "x-webhook-"])
@pytest.mark.parametrize("secret", [SECRET, OLD_STYLE], ids=["new style", "old style"])
def test_our_signatures_verify_in_both_header_families(family: str, secret: str) -> None:
    now = datetime.now(UTC)
    headers = only(family, signing.sign_headers([secret], "msg_1", now, BODY))
    message = signing.verify([OTHER, secret], headers, BODY, now, legacy=family == "x-webhook-")
    assert (message == "msg_1") is (family == "webhook-")


@pytest.mark.parametrize("family", ["webhook-", "x-webhook-"])
def test_header_names_are_case_insensitive(family: str) -> None:
    now = datetime.now(UTC)
    headers = only(family, signing.sign_headers([SECRET], "msg_1", now, BODY))
    signing.verify(
        SECRET, {name.title(): value for name, value in headers.items()}, BODY, now, legacy=family == "x-webhook-"
    )


@pytest.mark.parametrize("family", ["webhook-", "x-webhook-"])
@pytest.mark.parametrize(
    ("change", "why"),
    [
        ({"signature": "v1,AAAA"}, "does not match this body"),
        ({"signature": ""}, "does not match this body"),
        ({"signature": "v1,é"}, "does not match this body"),
        ({"signature": "\ud800"}, "does not match this body"),
        ({"timestamp": "1"}, "differs from the current time"),
        ({"timestamp": ""}, "not a whole number"),
        ({"timestamp": "-5"}, "not a whole number"),
        ({"timestamp": "٣٣"}, "not a whole number"),
        ({"timestamp": "9" * 400}, "not a whole number"),
        ({"timestamp": "1e9"}, "not a whole number"),
    ],
)
def test_tampered_requests_are_rejected_without_a_crash(family: str, change: dict[str, str], why: str) -> None:
    now = datetime.now(UTC)
    headers = only(family, signing.sign_headers([SECRET], "msg_1", now, BODY))
    headers |= {family + name: value for name, value in change.items()}
    with pytest.raises(BadSignature, match=why):
        signing.verify(SECRET, headers, BODY, now, legacy=family == "x-webhook-")


@pytest.mark.parametrize("family", ["webhook-", "x-webhook-"])
def test_another_body_another_secret_and_another_id_are_refused(family: str) -> None:
    now = datetime.now(UTC)
    headers = only(family, signing.sign_headers([SECRET], "msg_1", now, BODY))
    for keys, body in (([SECRET], BODY + b" "), ([OTHER], BODY), (list[str](), BODY)):
        with pytest.raises(BadSignature):
            signing.verify(keys, headers, body, now, legacy=family == "x-webhook-")
    if family == "webhook-":
        for message in ("msg_2", "", "a.b", "é", "\ud800"):
            with pytest.raises(BadSignature):
                signing.verify(SECRET, headers | {"webhook-id": message}, BODY, now)


@pytest.mark.parametrize("away", [timedelta(minutes=-6), timedelta(minutes=6)])
@pytest.mark.parametrize("family", ["webhook-", "x-webhook-"])
def test_signatures_that_are_too_old_or_in_the_future_are_rejected(family: str, away: timedelta) -> None:
    now = datetime.now(UTC)
    headers = only(family, signing.sign_headers([SECRET], "msg_1", now + away, BODY))
    with pytest.raises(BadSignature, match="differs from the current time"):
        signing.verify(SECRET, headers, BODY, now, legacy=family == "x-webhook-")
    signing.verify(SECRET, headers, BODY, now, tolerance=timedelta(minutes=7), legacy=family == "x-webhook-")


def test_unsigned_requests_are_rejected() -> None:
    for older in (False, True):
        with pytest.raises(BadSignature, match="header is missing"):
            signing.verify(SECRET, {}, BODY, datetime.now(UTC), legacy=older)


def test_the_older_headers_alone_are_accepted_only_on_request() -> None:
    now = datetime.now(UTC)
    stripped = only("x-webhook-", signing.sign_headers([SECRET], "msg_1", now, BODY))
    with pytest.raises(BadSignature, match="the webhook-signature header is missing"):
        signing.verify(SECRET, stripped, BODY, now)


def test_a_replay_is_recognised_by_the_older_headers_too() -> None:
    now = datetime.now(UTC)
    whole = signing.sign_headers([SECRET], "msg_1", now, BODY)
    other = signing.sign_headers([SECRET], "msg_1", now, BODY + b" ")
    first = signing.verify([SECRET, OTHER], whole, BODY, now, legacy=True)
    again = signing.verify(SECRET, only("x-webhook-", whole), BODY, now, legacy=True)
    assert first == again != signing.verify(SECRET, other, BODY + b" ", now, legacy=True)


@pytest.mark.parametrize("older", [False, True])
@pytest.mark.parametrize("keys", ["", [""], [SECRET, ""]])
def test_an_empty_secret_is_refused(keys: str | list[str], older: bool) -> None:
    now = datetime.now(UTC)
    forged = {"webhook-id": "msg_1", "webhook-timestamp": str(int(now.timestamp()))}
    forged |= {"x-webhook-timestamp": str(int(now.timestamp()))}
    signed = hmac.new(b"", f"{int(now.timestamp())}.".encode() + BODY, hashlib.sha256).hexdigest()
    with pytest.raises(ValueError, match="the secret is empty"):
        signing.verify(
            keys, forged | {"x-webhook-signature": signed, "webhook-signature": "v1,x"}, BODY, now, legacy=older
        )


def test_a_rejection_reveals_nothing_about_the_secret() -> None:
    headers = signing.sign_headers([OTHER], "msg_1", datetime.now(UTC), BODY)
    with pytest.raises(BadSignature) as refused:
        signing.verify(SECRET, headers, BODY, datetime.now(UTC))
    assert SECRET.removeprefix("whsec_") not in str(refused.value)


def test_a_secret_that_only_looks_like_one_of_standard_webhooks_is_a_mistake() -> None:
    for wrong in ("whsec_", "whsec_é", "whsec_AAAA", "whsec_not base64!!"):
        with pytest.raises(ValueError, match="the base64 of 24 to 64 bytes"):
            signing.check_secret(wrong)
    signing.check_secret(OLD_STYLE)


@pytest.mark.parametrize("family", ["webhook-", "x-webhook-"])
def test_signatures_are_compared_in_constant_time(family: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """By compare_digest, and with every secret, also when the first one fits."""
    now = datetime.now(UTC)
    headers = {name.lower(): text for name, text in signing.sign_headers([SECRET], "id", now, BODY).items()}
    compared, compare = [], hmac.compare_digest

    def watched(one: bytes, other: bytes) -> bool:
        compared.append(one)
        return compare(one, other)

    monkeypatch.setattr(hmac, "compare_digest", watched)
    signing.verify([SECRET, OTHER], only(family, headers), BODY, now, legacy=family == "x-webhook-")
    assert len(compared) == 2


def test_secrets_are_long_and_never_the_same() -> None:
    made = {signing.generate_secret() for _ in range(100)}
    assert len(made) == 100
    assert all(secret.startswith("whsec_") and len(secret) == 50 for secret in made)


def only(family: str, headers: dict[str, str]) -> dict[str, str]:
    return {name: value for name, value in headers.items() if name.startswith(family)}
