"""Single sign-on through the pages and a real OpenID provider, step by step as a browser goes."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from pathlib import Path
from typing import Any
from urllib.parse import parse_qsl, urlencode, urlsplit

import httpx2
import pytest

from retoma.errors import DefinitionError
from retoma.records import Role
from retoma.server.oidc import SignOnFailure
from retoma.server.oidc.provider import OidcProvider
from retoma.server.pages.login import _SIGN_ON_FAILURES
from retoma.server.single_sign_on import TIME_TO_LOG_IN
from retoma.settings import Settings
from retoma.store import people
from tests.identity.provider import CALLBACK, CLIENT_ID, CLIENT_SECRET, RETOMA, Provider
from tests.ports import free_port
from tests.server.conftest import OpenApi
from tests.server.pages.visitor import Visitor, token_of, visible_text
from tests.server.people import PASSWORD, add_person, ensure_administrator

OpenSite = Callable[..., AbstractAsyncContextManager[Visitor]]
GROUPS = {"editors": ["reviewer@blog"], "admins": ["administrator"]}


@pytest.fixture
def open_site(open_api: OpenApi, provider: Provider) -> OpenSite:
    """`open_site(**settings)`: a server with single sign-on, and somebody who visits it."""

    @asynccontextmanager
    async def opened(**settings: Any) -> AsyncIterator[Visitor]:
        values = {
            "oidc_issuer": provider.issuer,
            "oidc_client_id": CLIENT_ID,
            "oidc_client_secret": CLIENT_SECRET,
            "oidc_name": "Example ID",
            "oidc_create_people": True,
            "oidc_role_claim": "groups",
            "oidc_roles": GROUPS,
            "public_url": RETOMA,
        } | settings
        async with open_api(scopes=None, host=urlsplit(RETOMA).netloc, **values) as api:
            yield Visitor(api)

    return opened


def set_account(provider: Provider, subject: str, **claims: Any) -> None:
    values = {"email": f"{subject}@example.com", "email_verified": True, "name": subject.title(), "groups": ["editors"]}
    provider.set_account(subject, **values | claims)


async def sign_on(visitor: Visitor, provider: Provider, subject: str, to: str = "/") -> httpx2.Response:
    """Log in at the provider, and return the answer to coming back."""
    left = await visitor.get(f"/login/oidc?{urlencode({'to': to})}")
    assert left.status_code == 303, left.text
    back = await asyncio.to_thread(provider.log_in, left.headers["location"], subject)
    assert back.startswith(f"{CALLBACK}?"), back
    return await visitor.get(back.removeprefix(RETOMA))


async def list_actions(visitor: Visitor) -> list[tuple[str, str, Any]]:
    return [(each.action, each.actor_name, each.after) for each in await visitor.client.audit.list(action="person")][
        ::-1
    ]


async def test_a_first_login_creates_the_account_with_its_roles(open_site: OpenSite, provider: Provider) -> None:
    set_account(provider, "rita")
    async with open_site() as visitor:
        await visitor.client.start("film", tenant="blog")
        answer = await sign_on(visitor, provider, "rita", to="/runs?state=running")
        assert (answer.status_code, answer.headers["location"]) == (303, "/runs?state=running")
        assert (await visitor.get("/runs")).status_code == 200
        (person,) = await visitor.client.people.list()
        assert (person.name, person.email, person.has_password, person.is_linked) == (
            "Rita",
            "rita@example.com",
            False,
            True,
        )
        assert [(grant.tenant, grant.role) for grant in person.roles] == [("blog", Role.REVIEWER)]
        assert await list_actions(visitor) == [
            ("person.create", "single sign-on", {"name": "Rita", "email": "rita@example.com"}),
            ("person.set_role", "single sign-on", {"email": "rita@example.com", "tenant": "blog", "role": "reviewer"}),
            ("person.log_in", "Rita", {"method": "single sign-on"}),
        ]


async def test_the_login_page_offers_it_by_its_name_and_keeps_the_page_asked_for(open_site: OpenSite) -> None:
    async with open_site() as visitor:
        await ensure_administrator(visitor.client)
        shown = await visitor.get("/login?to=/runs%3Fstate%3Dfailed")
        assert "Log in with Example ID" in visible_text(shown)
        assert 'href="/login/oidc?to=/runs%3Fstate%3Dfailed"' in shown.text


async def test_without_the_setting_there_is_no_such_page(open_site: OpenSite) -> None:
    async with open_site(oidc_issuer=None) as visitor:
        await ensure_administrator(visitor.client)
        assert "/login/oidc" not in (await visitor.get("/login")).text
        for path in ("/login/oidc", "/login/oidc/callback"):
            assert (await visitor.get(path)).status_code == 404


async def test_roles_follow_the_claim_of_the_next_login(open_site: OpenSite, provider: Provider) -> None:
    set_account(provider, "nico", groups=["admins"])
    async with open_site() as visitor:
        await sign_on(visitor, provider, "nico")
        assert (await visitor.get("/people")).status_code == 200
        set_account(provider, "nico", groups=["editors"])
        await sign_on(visitor, provider, "nico")
        assert (await visitor.get("/people")).status_code == 403
        set_account(provider, "nico", groups=[])
        refused = await sign_on(visitor, provider, "nico")
        assert (refused.status_code, "You have no role here yet" in refused.text) == (401, True)
        (person,) = await visitor.client.people.list()
        assert person.roles == ()


async def test_an_existing_account_is_linked_by_its_verified_address(open_site: OpenSite, provider: Provider) -> None:
    set_account(provider, "lea")
    async with open_site(oidc_create_people=False) as visitor:
        before = await add_person(visitor.client, "lea@example.com", Role.OPERATOR)
        assert (await sign_on(visitor, provider, "lea")).status_code == 303
        (person,) = await visitor.client.people.list()
        assert (person.id, person.is_linked) == (before.id, True)


async def test_the_inviter_is_logged_out_by_the_first_single_sign_on_of_the_person(
    open_site: OpenSite, provider: Provider
) -> None:
    set_account(provider, "boss", groups=["admins"])
    async with open_site() as visitor:
        await add_person(visitor.client, "eve@example.com", Role.ADMINISTRATOR, "blog")
        eve = visitor.client.limit_to(["blog"])
        link = await eve.people.invite("Boss", "boss@example.com", role="viewer", tenant="blog")
        attacker = Visitor(visitor.api)
        await attacker.post(f"/set-password/{link.token}", {"password": PASSWORD, "again": PASSWORD})
        assert (await attacker.get("/runs")).status_code == 200
        assert (await sign_on(visitor, provider, "boss")).status_code == 303
        assert (await visitor.get("/people")).status_code == 200
        assert (await attacker.get("/people")).headers["location"].startswith("/login")
        assert (await attacker.log_in(PASSWORD, "boss@example.com")).status_code == 401


async def check_refused(answer: httpx2.Response, visitor: Visitor, status: int, sentence: str) -> None:
    assert answer.status_code == status, answer.text
    assert sentence in visible_text(answer)
    assert "retoma" not in visitor.cookies
    assert (await visitor.get("/runs")).headers["location"].startswith("/login")


async def test_an_address_that_is_not_verified_opens_no_account(open_site: OpenSite, provider: Provider) -> None:
    set_account(provider, "eve", email="ana@example.com", email_verified=False)
    async with open_site() as visitor:
        await ensure_administrator(visitor.client)
        answer = await sign_on(visitor, provider, "eve")
        await check_refused(answer, visitor, 401, "has not verified your e-mail address")
        assert not any(person.is_linked for person in await visitor.client.people.list())


async def test_the_address_of_another_login_opens_nothing(open_site: OpenSite, provider: Provider) -> None:
    set_account(provider, "mia")
    set_account(provider, "mia2", email="mia@example.com")
    async with open_site() as visitor:
        await sign_on(visitor, provider, "mia")
        visitor.cookies.clear()
        answer = await sign_on(visitor, provider, "mia2")
        await check_refused(answer, visitor, 401, "belongs to an account that another login uses")
        assert (await list_actions(visitor))[-1] == (
            "person.log_in_failed",
            "Mia",
            {"method": "single sign-on", "failure": "email_of_another"},
        )


async def test_an_unknown_person_is_told_to_ask_for_an_invitation(open_site: OpenSite, provider: Provider) -> None:
    set_account(provider, "zoe")
    async with open_site(oidc_create_people=False) as visitor:
        await check_refused(await sign_on(visitor, provider, "zoe"), visitor, 401, "You have no account here")
        assert await visitor.client.people.list() == []


async def test_a_disabled_person_is_refused(open_site: OpenSite, provider: Provider) -> None:
    set_account(provider, "ugo")
    async with open_site() as visitor:
        await sign_on(visitor, provider, "ugo")
        await visitor.client.people.disable("ugo@example.com")
        visitor.cookies.clear()
        await check_refused(await sign_on(visitor, provider, "ugo"), visitor, 401, "Your account is disabled")


async def test_a_callback_without_its_own_browser_logs_nobody_in(open_site: OpenSite, provider: Provider) -> None:
    """An attacker who sends a victim the address of his own login does not log the victim in as himself."""
    set_account(provider, "ivo")
    async with open_site() as visitor:
        left = await visitor.get("/login/oidc")
        back = await asyncio.to_thread(provider.log_in, left.headers["location"], "ivo")
        kept = dict(visitor.cookies)
        for cookies in ({}, {"retoma-login": "forged"}, {name: f"{value}x" for name, value in kept.items()}):
            visitor.cookies = cookies
            answer = await visitor.get(back.removeprefix(RETOMA))
            await check_refused(answer, visitor, 401, "was not started in this browser")
        visitor.cookies = kept
        assert (await visitor.get(back.removeprefix(RETOMA))).status_code == 303


async def test_a_state_or_code_of_another_login_is_refused(open_site: OpenSite, provider: Provider) -> None:
    set_account(provider, "kim")
    async with open_site() as visitor:
        left = await visitor.get("/login/oidc")
        back = await asyncio.to_thread(provider.log_in, left.headers["location"], "kim")
        query = dict(parse_qsl(urlsplit(back).query))
        kept = dict(visitor.cookies)
        wrong = await visitor.get(f"/login/oidc/callback?{urlencode(query | {'state': 'other'})}")
        await check_refused(wrong, visitor, 401, "was not started in this browser")
        assert visitor.cookies == {}
        visitor.cookies = dict(kept)
        assert (await visitor.get(back.removeprefix(RETOMA))).status_code == 303
        visitor.cookies = dict(kept)  # the same browser goes back in its history
        replayed = await visitor.get(back.removeprefix(RETOMA))
        await check_refused(replayed, visitor, 401, "did not confirm who you are")


async def test_another_nonce_is_refused(open_site: OpenSite, provider: Provider) -> None:
    set_account(provider, "noa")
    async with open_site() as visitor:
        url = urlsplit((await visitor.get("/login/oidc")).headers["location"])
        changed = url._replace(query=urlencode(dict(parse_qsl(url.query)) | {"nonce": "of another login"}))
        back = await asyncio.to_thread(provider.log_in, changed.geturl(), "noa")
        answer = await visitor.get(back.removeprefix(RETOMA))
        await check_refused(answer, visitor, 401, "The answer of the login service is not valid")


async def test_a_login_that_takes_too_long_is_started_again(open_site: OpenSite, provider: Provider) -> None:
    set_account(provider, "tom")
    async with open_site() as visitor:
        left = await visitor.get("/login/oidc")
        back = await asyncio.to_thread(provider.log_in, left.headers["location"], "tom")
        await visitor.api.sandbox.clock.advance(TIME_TO_LOG_IN)
        answer = await visitor.get(back.removeprefix(RETOMA))
        await check_refused(answer, visitor, 401, "took too long")


async def test_while_the_provider_is_down_the_password_still_works(open_site: OpenSite) -> None:
    async with open_site(oidc_issuer=f"http://127.0.0.1:{free_port()}") as visitor:
        await ensure_administrator(visitor.client)
        answer = await visitor.get("/login/oidc")
        await check_refused(answer, visitor, 503, "The login service cannot be reached")
        assert (await visitor.log_in()).status_code == 303


@pytest.mark.parametrize("to", ["https://evil.example", "//evil.example", "/\\evil.example", "javascript:alert(1)"])
async def test_a_login_leads_to_no_other_host(open_site: OpenSite, provider: Provider, to: str) -> None:
    set_account(provider, "ada")
    async with open_site() as visitor:
        assert (await sign_on(visitor, provider, "ada", to=to)).headers["location"] == "/"


async def test_the_provider_sends_the_browser_to_no_other_host(open_site: OpenSite, provider: Provider) -> None:
    """It knows the one address of this server, whatever Host header a request has."""
    async with open_site() as visitor:
        left = await visitor.get("/login/oidc", Host="evil.example")
        assert dict(parse_qsl(urlsplit(left.headers["location"]).query))["redirect_uri"] == CALLBACK


async def test_a_failure_is_explained_in_both_languages(open_site: OpenSite) -> None:
    async with open_site() as visitor:
        assert "was not started in this browser" in (await visitor.get("/login/oidc/callback?lang=en")).text
        assert "não foi iniciado neste navegador" in (await visitor.get("/login/oidc/callback?lang=pt")).text


def test_every_failure_has_an_explanation() -> None:
    assert set(_SIGN_ON_FAILURES) == set(SignOnFailure)


async def test_a_login_ends_the_session_before_it(open_site: OpenSite, provider: Provider) -> None:
    set_account(provider, "lou")
    async with open_site() as visitor:
        await visitor.log_in()
        previous = dict(visitor.cookies)
        await sign_on(visitor, provider, "lou")
        visitor.cookies = previous
        assert (await visitor.get("/runs")).status_code == 303


async def test_an_administrator_unlinks_an_account(open_site: OpenSite, provider: Provider) -> None:
    set_account(provider, "pia")
    set_account(provider, "pia2", email="pia@example.com", groups=["editors"])
    async with open_site() as visitor:
        await sign_on(visitor, provider, "pia")
        await visitor.log_in()
        csrf = token_of(await visitor.get("/people"))
        answer = await visitor.post("/people/unlink", {"csrf": csrf, "email": "pia@example.com"})
        assert answer.status_code == 303
        assert (await sign_on(visitor, provider, "pia2")).status_code == 303


async def test_the_secret_is_read_from_a_file(open_site: OpenSite, provider: Provider, tmp_path: Path) -> None:
    secret = tmp_path / "secret"
    secret.write_text(f"{CLIENT_SECRET}\n")
    set_account(provider, "gil")
    async with open_site(oidc_client_secret=None, oidc_client_secret_file=secret) as visitor:
        assert (await sign_on(visitor, provider, "gil")).status_code == 303


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"oidc_client_id": None}, "RETOMA_OIDC_CLIENT_ID"),
        ({"public_url": None}, "RETOMA_PUBLIC_URL"),
        ({"oidc_role_claim": None}, "RETOMA_OIDC_ROLE_CLAIM"),
        ({"oidc_roles": {"x": ["owner"]}}, "RETOMA_OIDC_ROLES"),
        ({"oidc_client_secret_file": Path("/nowhere/secret")}, "RETOMA_OIDC_CLIENT_SECRET_FILE"),
    ],
)
async def test_incomplete_settings_are_refused_at_start(
    open_site: OpenSite, changes: dict[str, Any], message: str
) -> None:
    with pytest.raises(DefinitionError, match=message):
        async with open_site(**changes):
            pass


def test_the_roles_are_read_from_json(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("RETOMA_OIDC_ROLES", '{"cn=editors,ou=x": ["reviewer@blog", "viewer"]}')
    assert Settings().oidc_roles == {"cn=editors,ou=x": ["reviewer@blog", "viewer"]}


async def test_neither_codes_nor_tokens_reach_the_log(
    open_site: OpenSite, provider: Provider, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    set_account(provider, "val", email_verified=False)
    tokens: dict[str, Any] = {}
    exchange = OidcProvider._exchange_code

    async def keep(self: OidcProvider, *arguments: Any) -> dict[str, Any]:
        tokens.update(await exchange(self, *arguments), code=arguments[3])
        return tokens

    monkeypatch.setattr(OidcProvider, "_exchange_code", keep)
    async with open_site() as visitor:
        await sign_on(visitor, provider, "val")
        recorded = repr(await visitor.client.audit.list())
        assert await people.list_people(visitor.client.database) == []
    logged = caplog.text + recorded
    assert "sign_on_failed" in logged
    for name in ("code", "id_token", "access_token"):
        assert tokens[name] not in logged
    assert CLIENT_SECRET not in logged
