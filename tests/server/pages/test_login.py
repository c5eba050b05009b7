"""Login by e-mail address and password: sessions end in time, and guessing is slow."""

from __future__ import annotations

from datetime import timedelta

import pytest
from argon2 import PasswordHasher

from retoma.engine import accounts
from retoma.errors import InvalidInput
from retoma.server.pages import page_context
from retoma.server.pages.login_session import safe_redirect_path
from retoma.server.pages.page_context import PUBLIC_FORM_LIMITS
from retoma.server.sessions import LOGINS_PER_MINUTE
from retoma.store.database import Database
from retoma.store.person_sessions import IDLE_TIMEOUT, MAX_SESSION_AGE
from tests.server.api import DEVELOPMENT_TOKEN
from tests.server.pages.visitor import SAME_ORIGIN, OpenPages, token_of, visible_text
from tests.server.people import ADMINISTRATOR, PASSWORD, add_person, ensure_administrator

CLOSED = {"development": False}
LOGIN = {"email": ADMINISTRATOR, "password": PASSWORD}


async def test_the_login_keeps_the_query_of_the_requested_page(open_pages: OpenPages) -> None:
    open_review = "/reviews?step=approved&tenant=PT"
    async with open_pages(**CLOSED) as visitor:
        await ensure_administrator(visitor.client)
        sent = await visitor.get(open_review)
        assert sent.headers["location"] == "/login?to=%2Freviews%3Fstep%3Dapproved%26tenant%3DPT"
        assert 'value="/reviews?step=approved&amp;tenant=PT"' in (await visitor.get(sent.headers["location"])).text
        answer = await visitor.log_in(to=open_review)
        assert answer.headers["location"] == open_review


async def test_the_password_opens_the_requested_page(open_pages: OpenPages) -> None:
    async with open_pages(**CLOSED) as visitor:
        sent = await visitor.get("/workers")
        assert sent.headers["location"] == "/login?to=%2Fworkers"
        answer = await visitor.log_in(to="/workers")
        assert (answer.status_code, answer.headers["location"]) == (303, "/workers")
        assert (await visitor.get("/workers")).status_code == 200


async def test_a_wrong_password_opens_nothing(open_pages: OpenPages) -> None:
    async with open_pages(**CLOSED) as visitor:
        for wrong in ("", "guess", PASSWORD.upper(), PASSWORD * 100):
            answer = await visitor.log_in(wrong)
            assert (answer.status_code, visitor.cookies) == (401, {})
            assert "The e-mail address or the password is not correct." in answer.text


@pytest.mark.usefixtures("frozen_rate_limit")
async def test_guessing_is_slowed_down_even_for_the_right_password(open_pages: OpenPages) -> None:
    async with open_pages(**CLOSED) as visitor:
        for _ in range(LOGINS_PER_MINUTE):
            await visitor.log_in("x" * (accounts.MAX_PASSWORD_LENGTH + 1))
        answer = await visitor.log_in()
        assert (answer.status_code, int(answer.headers["retry-after"]) > 0) == (429, True)


@pytest.mark.parametrize(
    "form",
    [
        b"password=" + b"x" * PUBLIC_FORM_LIMITS.size,
        b"a=%C3&" * PUBLIC_FORM_LIMITS.fields,
        b"a&" * PUBLIC_FORM_LIMITS.fields + b"password=x",
    ],
)
async def test_a_login_form_beyond_its_limits_is_not_parsed(
    open_pages: OpenPages, monkeypatch: pytest.MonkeyPatch, form: bytes
) -> None:
    parsed: list[bytes] = []
    monkeypatch.setattr(page_context, "_parse_form", parsed.append)
    async with open_pages(**CLOSED) as visitor:
        headers = SAME_ORIGIN | {"Content-Type": "application/x-www-form-urlencoded"}
        answer = await visitor.api.post("/login", key=None, content=form, headers=headers)
        assert (answer.status_code, parsed) == (413, [])


async def test_login_rejects_cross_origin_forms(open_pages: OpenPages) -> None:
    async with open_pages(**CLOSED) as visitor:
        answer = await visitor.post("/login", LOGIN, **{"Sec-Fetch-Site": "cross-site"})
        assert (answer.status_code, visitor.cookies) == (403, {})


@pytest.mark.parametrize("origin", ["http://[::", "http://a]", "null", "x"])
async def test_a_malformed_origin_is_another_one(open_pages: OpenPages, origin: str) -> None:
    async with open_pages(**CLOSED) as visitor:
        answer = await visitor.api.post("/login", key=None, data=LOGIN, headers={"Origin": origin})
        assert (answer.status_code, visitor.cookies) == (403, {})


@pytest.mark.parametrize(
    ("public", "name", "secure"), [("https://retoma.example", "__Host-retoma", True), (None, "retoma", False)]
)
async def test_the_cookie_is_kept_from_scripts_and_other_sites(
    open_pages: OpenPages, public: str | None, name: str, secure: bool
) -> None:
    async with open_pages(**CLOSED, public_url=public) as visitor:
        answer = await visitor.log_in()
        line = answer.headers["set-cookie"]
        assert ("strict-transport-security" in answer.headers) is secure
        assert line.startswith(f"{name}=")
        assert "HttpOnly" in line
        assert "SameSite=lax" in line
        assert "Path=/" in line
        assert "Domain" not in line
        assert ("Secure" in line) is secure


async def test_logout_ends_the_session_itself(open_pages: OpenPages) -> None:
    async with open_pages(**CLOSED) as visitor:
        await visitor.log_in()
        kept = dict(visitor.cookies)
        await visitor.post("/logout", {"csrf": token_of(await visitor.get("/account"))})
        assert visitor.cookies == {}
        visitor.cookies = kept
        assert (await visitor.get("/")).status_code == 303


async def test_a_login_ends_the_previous_session(open_pages: OpenPages) -> None:
    async with open_pages(**CLOSED) as visitor:
        await visitor.log_in()
        previous = dict(visitor.cookies)
        await visitor.log_in()
        assert (await visitor.get("/style-guide")).status_code == 200
        visitor.cookies = previous
        assert (await visitor.get("/style-guide")).status_code == 303


async def test_an_idle_session_expires(open_pages: OpenPages) -> None:
    async with open_pages(**CLOSED) as visitor:
        await visitor.log_in()
        await visitor.api.sandbox.clock.advance(IDLE_TIMEOUT - timedelta(seconds=1))
        assert (await visitor.get("/style-guide")).status_code == 200
        await visitor.api.sandbox.clock.advance(IDLE_TIMEOUT - timedelta(seconds=1))
        assert (await visitor.get("/style-guide")).status_code == 200
        await visitor.api.sandbox.clock.advance(IDLE_TIMEOUT)
        assert (await visitor.get("/style-guide")).status_code == 303


async def test_a_session_expires_even_if_it_is_used(open_pages: OpenPages) -> None:
    async with open_pages(**CLOSED) as visitor:
        await visitor.log_in()
        for _ in range(20):
            assert (await visitor.get("/style-guide")).status_code == 200
            await visitor.api.sandbox.clock.advance(MAX_SESSION_AGE / 20)
        assert (await visitor.get("/style-guide")).status_code == 303


async def test_each_login_is_a_separate_session_and_its_token_is_not_stored(
    open_pages: OpenPages, database: Database
) -> None:
    async with open_pages(**CLOSED) as visitor:
        await visitor.log_in()
        first = visitor.cookies.pop("retoma")
        await visitor.log_in()
        assert visitor.cookies["retoma"] != first
        async with database.connection() as connection:
            rows = await connection.fetch(
                "select encode(digest, 'escape') || encode(digest, 'base64') from retoma.person_sessions"
            )
        assert len(rows) == 2
        assert not [row for row in rows if first in row[0]]


async def test_without_an_administrator_the_page_explains_how_to_create_one(open_pages: OpenPages) -> None:
    async with open_pages(development=False) as visitor:
        assert "retoma people create" in (await visitor.get("/login")).text
        assert (await visitor.post("/login", LOGIN)).status_code == 401
        visitor.cookies = {"retoma": "guessed"}
        assert (await visitor.get("/")).status_code == 303


async def test_an_unknown_address_costs_as_much_as_a_wrong_password(
    open_pages: OpenPages, monkeypatch: pytest.MonkeyPatch
) -> None:
    verified: list[object] = []
    verify = PasswordHasher.verify

    def note(self: PasswordHasher, hashed: str, password: str) -> bool:
        verified.append(self)
        return verify(self, hashed, password)

    monkeypatch.setattr(PasswordHasher, "verify", note)
    async with open_pages(**CLOSED) as visitor:
        await add_person(visitor.client, "bea@example.com", None)
        for email in ("bea@example.com", "nobody@example.com", "not an address"):
            answer = await visitor.log_in("a wrong password", email)
            assert answer.status_code == 401
        assert len(verified) == 3


async def test_the_address_is_found_in_any_case(open_pages: OpenPages) -> None:
    async with open_pages(**CLOSED) as visitor:
        await ensure_administrator(visitor.client)
        assert (await visitor.log_in(PASSWORD, " ANA@Example.com ")).status_code == 303


async def test_the_component_list_is_not_linked(open_pages: OpenPages) -> None:
    async with open_pages() as visitor:
        assert 'href="/style-guide"' not in (await visitor.get("/")).text


async def test_the_printed_url_logs_the_browser_in_and_leaves_no_visible_token(open_pages: OpenPages) -> None:
    async with open_pages() as visitor:
        visitor.cookies.clear()
        opened = await visitor.get(f"/runs?token={DEVELOPMENT_TOKEN}&state=failed")
        assert (opened.status_code, opened.headers["location"]) == (303, "/runs?state=failed")
        assert "HttpOnly; Path=/; SameSite=strict" in opened.headers["set-cookie"]
        assert (await visitor.get("/runs")).status_code == 200


@pytest.mark.parametrize("headers", [{"Host": "evil.example"}, {"Via": "1.1 proxy"}, {"X_Forwarded_Proto": "https"}])
async def test_the_printed_url_is_useless_through_a_proxy(open_pages: OpenPages, headers: dict[str, str]) -> None:
    async with open_pages() as visitor:
        visitor.cookies.clear()
        opened = await visitor.get(f"/?token={DEVELOPMENT_TOKEN}", **headers)
        assert opened.headers["location"] == "/login"
        assert visitor.cookies == {}


async def test_a_wrong_token_opens_nothing(open_pages: OpenPages) -> None:
    async with open_pages() as visitor:
        visitor.cookies.clear()
        assert (await visitor.get("/?token=guessed")).headers["location"] == "/login"
        assert visitor.cookies == {}


@pytest.mark.parametrize(
    ("language", "headers", "sentence"),
    [
        ("en", {}, "Open the address that it printed"),
        ("pt", {}, "Abra o endereço que ele mostrou"),
        ("en", {"Via": "1.1 proxy"}, "came through a proxy"),
        ("pt", {"Via": "1.1 proxy"}, "veio por um proxy"),
        ("en", {"Host": "evil.example"}, "serves only its own machine"),
    ],
)
async def test_the_development_rejection_says_why_and_what_to_do(
    open_pages: OpenPages, language: str, headers: dict[str, str], sentence: str
) -> None:
    async with open_pages() as visitor:
        visitor.cookies.clear()
        shown = await visitor.get("/login", Accept_Language=language, **headers)
        assert shown.status_code == 401
        assert sentence in visible_text(shown)
        assert "retoma people" not in shown.text


async def test_development_opens_pages_to_this_machine_only(open_pages: OpenPages) -> None:
    async with open_pages(address="203.0.113.9") as visitor:
        assert (await visitor.get("/")).status_code == 303
    async with open_pages() as visitor:
        assert (await visitor.get("/")).status_code == 200
        assert (await visitor.get("/", Host="evil.example")).status_code == 303
        assert (await visitor.get("/", X_Forwarded_For="203.0.113.9")).status_code == 303


@pytest.mark.parametrize(
    "to", ["//evil.example", "/\\evil.example", "https://evil.example", "javascript:x", "", "/a\nb"]
)
def test_login_cannot_redirect_elsewhere(to: str) -> None:
    assert safe_redirect_path(to) == "/"


def test_a_short_password_is_refused() -> None:
    with pytest.raises(InvalidInput, match="12 to"):
        accounts.hash_password("short")
