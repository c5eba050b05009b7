"""Each code of the plugin, and each failure of its server, becomes the error that says what happens next."""

from __future__ import annotations

import json
import re
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import pytest
from pydantic import SecretStr

from retoma import GiveUp, NeedsReview
from retoma.errors import ProviderDown, ProviderRejected, RateLimited, RetryLater
from retoma_apps.providers.wordpress import (
    CODES,
    Article,
    Image,
    PostChanged,
    Publication,
    PublicationFailed,
    SiteRejected,
    WordPress,
    WordPressSettings,
)
from tests.receiver import Receiver, hang_up, receiver, respond_with

ROOT = Path(__file__).parents[4]
SECRET = "aw_test.CANARY-0123456789abcdef"
KEY = "ab" * 32
PUBLICATION = Publication(KEY, "job-1", 1, Article("Chá", "<p>Texto.</p>"))


@asynccontextmanager
async def connected(received: Receiver) -> AsyncIterator[WordPress]:
    settings = WordPressSettings(base_url=f"http://127.0.0.1:{received.port}/blog/", secret=SecretStr(SECRET))
    blog = WordPress(settings)
    try:
        yield blog
    finally:
        await blog.close()


async def publish(status: int, body: object, **headers: str) -> None:
    answer = respond_with(status, json.dumps(body).encode(), **headers)
    async with receiver(answer) as received, connected(received) as blog:
        await blog.publish(PUBLICATION)


def make_error(code: str, **data: object) -> dict[str, object]:
    return {"code": code, "message": f"what happened to {SECRET}", "data": data}


@pytest.mark.parametrize("code", CODES)
async def test_each_code_becomes_the_error_of_the_table(code: str) -> None:
    with pytest.raises(CODES[code].error) as raised:
        await publish(409, make_error(code))
    assert type(raised.value) is CODES[code].error
    assert getattr(raised.value, "code", code) == code
    assert CODES[code].next_action in str(raised.value)
    assert "CANARY" not in str(raised.value)


def test_the_plugin_has_the_codes_of_the_table_and_agrees_on_retries() -> None:
    php = (ROOT / "wordpress/autowriter/includes/class-failure.php").read_text()
    listed = re.findall(r"'([A-Z_]+)'\s+=> array\( \d+, (true|false) \)", php)
    assert {code: retryable == "true" for code, retryable in listed} == {
        code: rule.retryable for code, rule in CODES.items()
    }


def test_the_page_has_the_table_of_codes() -> None:
    page = (ROOT / "docs/providers/wordpress.md").read_text()
    rows = re.findall(r"^\| `([A-Z_]+)` \| `(\w+)` \| (yes|no) \| (.+) \| (\w+) \|$", page, re.MULTILINE)
    assert rows[:-1] == [
        (code, rule.error.__name__, "yes" if rule.retryable else "no", rule.next_action, rule.who_acts)
        for code, rule in CODES.items()
    ]
    assert rows[-1][:3] == ("WP_REJECTED", "GiveUp", "no")


@pytest.mark.parametrize("code", ["AUTH_FAILED", "HMAC_INVALID"])
def test_wrong_credentials_are_not_retried(code: str) -> None:
    assert (CODES[code].error, CODES[code].retryable, CODES[code].who_acts) == (SiteRejected, False, "operator")


async def test_an_edited_post_is_for_a_person_to_decide() -> None:
    with pytest.raises(PostChanged) as raised:
        await publish(409, make_error("POST_EDITED", edited=["title", "seo"]))
    assert isinstance(raised.value, NeedsReview)
    assert raised.value.edited == ("title", "seo")


async def test_an_article_that_is_being_published_is_tried_again_without_an_attempt() -> None:
    with pytest.raises(RetryLater) as raised:
        await publish(409, make_error("IDEMPOTENCY_DUPLICATE", retryable=True), retry_after="5")
    assert type(raised.value) is RetryLater
    assert raised.value.delay.total_seconds() == 5


async def test_a_rate_limit_lasts_as_long_as_the_site_says() -> None:
    with pytest.raises(RateLimited) as raised:
        await publish(429, make_error("RATE_LIMIT"), retry_after="17")
    assert raised.value.delay.total_seconds() == 17


@pytest.mark.parametrize(
    ("status", "body", "error"),
    [
        pytest.param(404, {"code": "rest_no_route"}, ProviderRejected, id="no plugin"),
        pytest.param(403, "<html>", ProviderRejected, id="firewall"),
        pytest.param(301, "", ProviderRejected, id="redirect"),
        pytest.param(500, "<html>", ProviderDown, id="crash"),
        pytest.param(503, {"code": "x"}, ProviderDown, id="maintenance"),
        pytest.param(429, "", RateLimited, id="limit of the server"),
        pytest.param(418, {"code": ["x"]}, GiveUp, id="unknown"),
        pytest.param(200, "<html>", ProviderDown, id="not the plugin"),
        pytest.param(200, {"post_id": "x"}, ProviderDown, id="not its answer"),
    ],
)
async def test_other_answers_say_who_is_at_fault(status: int, body: object, error: type[Exception]) -> None:
    with pytest.raises(error) as raised:
        await publish(status, body)
    assert type(raised.value) is error


async def test_a_site_that_does_not_answer_is_down() -> None:
    async with receiver(hang_up()) as received, connected(received) as blog:
        with pytest.raises(ProviderDown):
            await blog.publish(PUBLICATION)


async def test_a_failed_publication_may_be_retried() -> None:
    with pytest.raises(PublicationFailed):
        await publish(500, make_error("SEO_APPLY_FAIL"))


async def test_an_article_that_is_too_large_is_not_sent() -> None:
    image = Image("big", "featured", "big.png", "image/png", b"x" * 13 * 1024**2)
    async with receiver() as received, connected(received) as blog:
        with pytest.raises(GiveUp) as raised:
            await blog.publish(Publication(KEY, "job-1", 1, Article("Chá", "x", images=(image,))))
    assert raised.value.code == "BODY_TOO_LARGE"
    assert received.requests == []


async def test_a_site_without_an_address_says_which_variable_to_set() -> None:
    with pytest.raises(ProviderRejected, match="set WORDPRESS_BASE_URL"):
        await WordPress(WordPressSettings(secret=SecretStr(SECRET))).ping()


@pytest.mark.parametrize("values", [{"idempotency_key": "x"}, {"revision": 0}])
def test_a_publication_that_the_plugin_would_refuse_cannot_be_made(values: dict[str, object]) -> None:
    with pytest.raises(ValueError, match=r"idempotency key|numbered from 1"):
        Publication(**({"idempotency_key": KEY, "job_id": "j", "revision": 1, "article": Article("a", "b")} | values))  # type: ignore[arg-type]
