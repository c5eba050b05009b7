"""Only requests that are signed with a secret of the site, recently and once, are accepted."""

from __future__ import annotations

import json
import time
from dataclasses import replace
from typing import Any
from uuid import uuid4

import httpx2
import pytest

from tests.wordpress.articles import make_image, make_publication, new_key
from tests.wordpress.dashboard import NAMESPACE, Dashboard, read_error
from tests.wordpress.site import WordPress

CREATE_SECRET = "return AutoWriter\\create_secret();"


def at(seconds: float) -> str:
    return str(int(time.time() + seconds))


def test_a_signed_request_is_accepted(dashboard: Dashboard) -> None:
    assert dashboard.send("GET", "/ping").status_code == 200


@pytest.mark.parametrize(
    "headers",
    [*({name: "missing"} for name in ("key_id", "timestamp", "nonce", "signature")), {"key_id": "aw_000000000000"}],
)
def test_a_request_with_unknown_or_missing_credentials_is_refused(
    dashboard: Dashboard, headers: dict[str, str]
) -> None:
    assert read_error(dashboard.send("GET", "/ping", **headers)) == (401, "AUTH_FAILED", False)


@pytest.mark.parametrize("signature", ["0" * 64, "x", "0" * 4_000])
def test_a_wrong_signature_is_refused(dashboard: Dashboard, signature: str) -> None:
    assert read_error(dashboard.send("GET", "/ping", signature=signature)) == (401, "HMAC_INVALID", False)


def test_a_request_signed_with_another_secret_is_refused(dashboard: Dashboard) -> None:
    stranger = replace(dashboard, credentials=f"{dashboard.key_id}.{'0' * 64}")
    assert read_error(stranger.publish()) == (401, "HMAC_INVALID", False)


def test_the_signature_covers_method_route_timestamp_nonce_and_body(dashboard: Dashboard) -> None:
    body, address = json.dumps(make_publication()).encode(), f"{dashboard.site.address}/wp-json{NAMESPACE}"
    headers = dashboard.sign("POST", f"{NAMESPACE}/jobs", body) | {"Content-Type": "application/json"}

    def send(method: str = "POST", route: str = "/jobs", content: bytes = body, **changed: str) -> tuple[int, str]:
        replaced = {f"X-Autowriter-{name.title()}": value for name, value in changed.items()}
        answer = httpx2.request(method, address + route, content=content, headers=headers | replaced, timeout=60)
        return answer.status_code, answer.json().get("code", "")

    tampered = [
        send(method="PUT"),
        send(route=f"/jobs/{'0' * 64}/mark"),
        send(timestamp=at(1)),
        send(nonce=uuid4().hex),
        send(content=body.replace(b"guia", b"Guia")),
    ]
    assert tampered == [(404, "rest_no_route"), *[(401, "HMAC_INVALID")] * 4]
    assert send() == (201, "")
    own, other = json.loads(body)["idempotency_key"], new_key()
    dashboard.publish(make_publication(other))
    with_a_query = [
        dashboard.send("GET", f"/jobs/{own}", query=f"key={other}"),
        dashboard.send("POST", f"/jobs/{own}/mark", {"note": "x"}, query=f"key={other}"),
        dashboard.send("GET", "/ping", query="_fields=blog_id"),
    ]
    assert [read_error(each) for each in with_a_query] == [(401, "HMAC_INVALID", False)] * 3


def test_a_job_is_named_by_the_route_and_by_nothing_else(dashboard: Dashboard) -> None:
    own, other = new_key(), new_key()
    for key in (own, other):
        dashboard.publish(make_publication(key))
    assert dashboard.mark(own, "x", key=other).json()["job_id"] == f"job-{own[:8]}"
    assert dashboard.get_job(other).json()["note"] is None


def test_the_route_is_signed_and_not_the_path(dashboard: Dashboard) -> None:
    headers = dashboard.sign("GET", f"{NAMESPACE}/ping", b"")
    address = f"{dashboard.site.address}/index.php?rest_route={NAMESPACE}/ping"
    assert httpx2.get(address, headers=headers, timeout=60).status_code == 200


@pytest.mark.parametrize(("shift", "is_accepted"), [(-290, True), (290, True), (-310, False), (310, False)])
def test_a_request_is_accepted_within_five_minutes(dashboard: Dashboard, shift: int, is_accepted: bool) -> None:
    answer = dashboard.send("GET", "/ping", timestamp=at(shift))
    assert answer.status_code == (200 if is_accepted else 401)
    assert is_accepted or answer.json()["code"] == "HMAC_INVALID"


@pytest.mark.parametrize("timestamp", ["soon", "-1", "1e9", "9" * 30])
def test_a_timestamp_that_is_no_number_of_seconds_is_refused(dashboard: Dashboard, timestamp: str) -> None:
    assert read_error(dashboard.send("GET", "/ping", timestamp=timestamp)) == (401, "HMAC_INVALID", False)


def test_a_replayed_request_is_refused(dashboard: Dashboard) -> None:
    nonce = uuid4().hex
    assert dashboard.send("GET", "/ping", nonce=nonce).status_code == 200
    answer = dashboard.send("GET", "/ping", nonce=nonce)
    assert read_error(answer) == (401, "HMAC_INVALID", False)
    assert "nonce" in answer.json()["message"]


def test_old_requests_and_used_nonces_are_refused(dashboard: Dashboard) -> None:
    nonce = uuid4().hex
    answers = [
        dashboard.send("GET", "/ping", nonce=nonce),
        dashboard.send("GET", "/ping", nonce=nonce),
        dashboard.send("GET", "/ping", timestamp=at(-310)),
        dashboard.send("GET", "/ping", timestamp=at(310)),
    ]
    assert [each.status_code for each in answers] == [200, 401, 401, 401]
    assert {each.json()["code"] for each in answers[1:]} == {"HMAC_INVALID"}


def test_a_nonce_is_remembered_as_long_as_its_request_is_recent(dashboard: Dashboard) -> None:
    nonce, timestamp = uuid4().hex, at(295)
    assert dashboard.send("GET", "/ping", nonce=nonce, timestamp=timestamp).status_code == 200
    answers = [
        dashboard.send("GET", "/ping", nonce=nonce, timestamp=timestamp, fault=f"now={later}") for later in (500, 700)
    ]
    assert [each.json()["code"] for each in answers] == ["HMAC_INVALID", "HMAC_INVALID"]
    assert ["nonce" in each.json()["message"] for each in answers] == [True, False]


def test_a_database_that_stores_no_nonces_is_not_taken_for_a_replay(own_site: WordPress) -> None:
    own_site.run_php('$wpdb->query( "RENAME TABLE {$wpdb->prefix}autowriter_nonces TO lost" );')
    assert read_error(Dashboard(own_site).publish()) == (500, "PUBLISH_FAILED", True)


@pytest.mark.parametrize("nonce", ["short", "x" * 65, "with space in between"])
def test_a_nonce_of_another_form_is_refused(dashboard: Dashboard, nonce: str) -> None:
    assert read_error(dashboard.send("GET", "/ping", nonce=nonce)) == (401, "HMAC_INVALID", False)


def test_an_old_secret_is_valid_until_the_rotation_is_finished(own_site: WordPress) -> None:
    old = Dashboard(own_site)
    new = replace(old, credentials=own_site.run_php(CREATE_SECRET))
    assert [each.send("GET", "/ping").status_code for each in (old, new)] == [200, 200]
    own_site.run_php("AutoWriter\\retire_old_secrets();")
    assert read_error(old.send("GET", "/ping")) == (401, "AUTH_FAILED", False)
    assert new.send("GET", "/ping").status_code == 200


def test_no_third_secret_is_created(own_site: WordPress) -> None:
    own_site.run_php(CREATE_SECRET)
    code = "try { AutoWriter\\create_secret(); } catch ( LogicException $error ) { return 'refused'; }"
    assert own_site.run_php(code) == "refused"


def test_each_site_has_its_own_secret_and_two_while_one_replaces_the_other(own_network: WordPress) -> None:
    old = own_network.credentials["/viagens/"]
    new = own_network.run_php(CREATE_SECRET, path="/viagens/")
    assert [Dashboard(own_network, "/viagens/", each).send("GET", "/ping").status_code for each in (old, new)] == [
        200,
        200,
    ]
    for each in (old, new):
        stranger = Dashboard(own_network, "/receitas/", each)
        assert read_error(stranger.send("GET", "/ping")) == (401, "AUTH_FAILED", False)


def test_too_many_requests_of_a_key_are_refused_with_the_time_to_wait(own_site: WordPress) -> None:
    own_site.run_php("update_option( 'autowriter_requests_per_minute', 3 );")
    dashboard = Dashboard(own_site)
    answers = [dashboard.send("GET", "/ping") for _ in range(4)]
    assert [each.status_code for each in answers] == [200, 200, 200, 429]
    assert read_error(answers[3]) == (429, "RATE_LIMIT", True)
    wait = int(answers[3].headers["retry-after"])
    assert 1 <= wait <= 60
    assert dashboard.send("GET", "/ping", fault=f"now={wait}").status_code == 200


def test_a_stranger_cannot_use_up_the_limit_of_a_key(own_site: WordPress) -> None:
    own_site.run_php("update_option( 'autowriter_requests_per_minute', 1 );")
    dashboard = Dashboard(own_site)
    for _ in range(3):
        assert dashboard.send("GET", "/ping", signature="0" * 64).status_code == 401
    assert dashboard.send("GET", "/ping").status_code == 200


def test_a_body_of_more_than_16_mib_is_refused(dashboard: Dashboard) -> None:
    image = make_image("big", "featured", data="A" * 16 * 1024**2)
    assert read_error(dashboard.publish(images=[image])) == (413, "BODY_TOO_LARGE", False)


def test_an_article_of_almost_16_mib_is_published(dashboard: Dashboard) -> None:
    images = [make_image(new_key(), "featured"), make_image(new_key(), data="A" * (15 * 1024**2))]
    assert dashboard.publish(images=images).json()["status"] == "partial"


def test_a_body_that_php_has_dropped_is_reported_as_too_large(site: WordPress) -> None:
    code = """
    $request = new WP_REST_Request( 'POST', '/autowriter/v1/jobs' );
    $request->set_headers( $headers );
    return AutoWriter\\authenticate( $request )->get_error_code();
    """
    signed = Dashboard(site).sign("POST", f"{NAMESPACE}/jobs", b"x")
    assert site.run_php(code, headers={**signed, "Content-Length": "99999999"}) == "BODY_TOO_LARGE"


@pytest.mark.parametrize(
    ("method", "route"),
    [("POST", "/jobs"), ("GET", f"/jobs/{'0' * 64}"), ("POST", f"/jobs/{'0' * 64}/mark"), ("GET", "/ping")],
)
def test_every_route_needs_a_signature(dashboard: Dashboard, method: str, route: str) -> None:
    address = f"{dashboard.site.address}/wp-json{NAMESPACE}{route}"
    answer = httpx2.request(method, address, json=make_publication() if method == "POST" else None, timeout=60)
    assert read_error(answer) == (401, "AUTH_FAILED", False)


def test_answers_are_not_cached(dashboard: Dashboard) -> None:
    assert dashboard.send("GET", "/ping").headers["cache-control"] == "no-store"


def test_secrets_never_appear_in_answers_or_logs(dashboard: Dashboard) -> None:
    answers: list[Any] = [
        dashboard.send("GET", "/ping"),
        dashboard.publish(),
        dashboard.send("GET", "/ping", nonce="x"),
    ]
    shown = "".join(each.text for each in answers)
    logged = "".join(path.read_text() for path in dashboard.site.log.parent.glob("*.log"))
    assert dashboard.secret not in shown + logged
