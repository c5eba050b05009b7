"""The owner of a channel consents in the browser: from the page of connections to YouTube and back."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass
from urllib.parse import urlsplit

import httpx2
import pytest

from retoma import App
from retoma.records import Role
from retoma_apps.providers.youtube import CONNECTION
from standins.youtube import StandIn
from tests.server.api import film
from tests.server.conftest import OpenApi, open_api
from tests.server.pages.visitor import Visitor, token_of, visible_text, visit_pages
from tests.server.people import PASSWORD, add_person

__all__ = ["open_api"]
SECRET = "GOCSPX-CANARY"
START = "/connections/consent/start?service=youtube&tenant=blog&account=News"


@dataclass
class Consent:
    visitor: Visitor
    youtube: StandIn

    async def leave(self) -> str:
        """Start on the page; return the address at Google."""
        answer = await self.visitor.get(START)
        assert answer.status_code == 303, visible_text(answer)
        return answer.headers["location"]

    async def decide(self, address: str) -> str:
        """The owner decides at Google; return the path to which Google sends the browser back."""
        async with httpx2.AsyncClient() as browser:
            back = urlsplit((await browser.get(address)).headers["location"])
        return f"{back.path}?{back.query}"


@pytest.fixture
async def consent(open_api: OpenApi, monkeypatch: pytest.MonkeyPatch) -> AsyncIterator[Consent]:
    async with opened(open_api, monkeypatch) as made:
        await made.visitor.log_in()
        page = await made.visitor.get("/connections/edit/youtube")
        fields = {"service": "youtube", "tenant": "blog", "account": "News", "csrf": token_of(page)}
        client = {"field.client_id": "client", "field.client_secret": SECRET}
        await made.visitor.client.start("film", {}, tenant="blog")
        assert (await made.visitor.post("/connections", {**fields, **client})).status_code == 303
        yield made


@asynccontextmanager
async def opened(open_api: OpenApi, monkeypatch: pytest.MonkeyPatch) -> AsyncIterator[Consent]:
    youtube = StandIn()
    application = App("films", pipelines=[film], connections=[CONNECTION])
    async with (
        youtube.serving() as origin,
        visit_pages(open_api)(application=application, development=False, host="retoma.example") as visitor,
    ):
        for name, value in youtube.variables(origin).items():
            monkeypatch.setenv(name, value)
        yield Consent(visitor, youtube)


async def is_connected(consent: Consent) -> bool:
    found = await consent.visitor.client.connections.get("youtube", tenant="blog", account="News")
    return "refresh_token" in found.secret_fields


async def test_a_consent_becomes_a_connection_that_works(consent: Consent) -> None:
    back = await consent.decide(await consent.leave())
    finished = await consent.visitor.get(back)
    assert (finished.status_code, finished.headers["location"].partition("?")[0]) == (303, "/connections")
    assert await is_connected(consent)
    tested = await consent.visitor.client.connections.test("youtube", tenant="blog", account="News")
    assert (tested.is_ok, tested.message) == (True, "YouTube accepts the consent for the channel 'Stand-in channel'")


async def test_google_is_asked_for_a_lasting_consent_with_pkce(consent: Consent) -> None:
    asked = httpx2.QueryParams(urlsplit(await consent.leave()).query)
    assert (asked["access_type"], asked["prompt"], asked["code_challenge_method"]) == ("offline", "consent", "S256")
    assert asked["redirect_uri"].endswith("/connections/consent")
    assert "youtube.upload" in asked["scope"]
    assert SECRET not in str(asked)


async def test_a_refusal_changes_nothing(consent: Consent) -> None:
    consent.youtube.faults.refuses_consent = 1
    refused = await consent.visitor.get(await consent.decide(await consent.leave()))
    assert refused.status_code == 400
    assert "The consent was refused" in visible_text(refused)
    assert not await is_connected(consent)


async def test_a_wrong_state_is_refused_and_the_code_not_used(consent: Consent) -> None:
    back = httpx2.URL(await consent.decide(await consent.leave()))
    forged = await consent.visitor.get(f"{back.path}?code={back.params['code']}&state=another")
    assert forged.status_code == 400
    assert "was not started in this session" in visible_text(forged)
    assert len(consent.youtube.codes) == 1
    assert not await is_connected(consent)


async def test_a_consent_of_another_session_is_refused(consent: Consent) -> None:
    back = await consent.decide(await consent.leave())
    await add_person(consent.visitor.client, "bia@example.com", Role.ADMINISTRATOR)
    await consent.visitor.log_in(PASSWORD, "bia@example.com")
    assert (await consent.visitor.get(back)).status_code == 400
    assert not await is_connected(consent)


async def test_a_replay_is_refused(consent: Consent) -> None:
    address = await consent.leave()
    kept = dict(consent.visitor.cookies)
    back = await consent.decide(address)
    assert (await consent.visitor.get(back)).status_code == 303
    assert (await consent.visitor.get(back)).status_code == 400  # the browser has forgotten it
    consent.visitor.cookies = kept
    again = await consent.visitor.get(back)
    assert again.status_code == 422  # Google accepts a code once
    assert "did not accept the consent" in visible_text(again)


async def test_a_browser_that_did_not_begin_is_refused(consent: Consent) -> None:
    answer = await consent.visitor.get("/connections/consent?code=4/stolen&state=guessed")
    assert answer.status_code == 400
    assert not await is_connected(consent)


async def test_the_secrets_of_a_consent_show_nowhere(consent: Consent, caplog: pytest.LogCaptureFixture) -> None:
    with caplog.at_level("DEBUG"):
        back = await consent.decide(await consent.leave())
        consent.youtube.codes.clear()  # Google refuses the code
        answer = await consent.visitor.get(back)
    code = httpx2.URL(back).params["code"]
    ours = "".join(str(each.__dict__) for each in caplog.records if not each.name.startswith("http"))
    for secret in (SECRET, code):
        assert secret not in answer.text
        assert secret not in ours


async def test_without_an_oauth_client_the_page_says_what_is_missing(
    open_api: OpenApi, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with opened(open_api, monkeypatch) as made:
        await made.visitor.log_in()
        answer = await made.visitor.get(START)
        assert answer.status_code == 422
        assert "YouTube needs an OAuth client" in visible_text(answer)


async def test_an_administrator_of_another_tenant_cannot_begin(
    open_api: OpenApi, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with opened(open_api, monkeypatch) as made:
        await add_person(made.visitor.client, "bia@example.com", Role.ADMINISTRATOR, "shop")
        await made.visitor.log_in(PASSWORD, "bia@example.com")
        assert (await made.visitor.get(START)).status_code == 403
