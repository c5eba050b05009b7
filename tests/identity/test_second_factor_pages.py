"""The second factor on the pages: set it up, log in with it, and lose it."""

from __future__ import annotations

import re
from datetime import timedelta

import httpx2
import pytest
from pyotp.totp import TOTP

from retoma.records import Role
from retoma.server.pages.second_factor import FRESH_LOGIN, TIME_TO_ENTER, TIME_TO_SET_UP, draw_qr_code
from retoma.server.sessions import CODES_PER_MINUTE
from retoma.store import people
from tests.engine.builders import rows
from tests.server.conftest import OpenApi
from tests.server.pages.visitor import OpenPages, Visitor, token_of, visible_text, visit_pages
from tests.server.people import ADMINISTRATOR, HASH, PASSWORD, add_person

SETUP = "/account/second-factor"
BO = "bo@example.com"


@pytest.fixture
def open_pages(open_api: OpenApi) -> OpenPages:
    return visit_pages(open_api)


def read_secret(shown: httpx2.Response) -> TOTP:
    found = re.search(r'<code class="wrapany">([A-Z2-7 ]+)</code>', shown.text)
    assert found, shown.text
    return TOTP(found[1].replace(" ", ""))


async def show_code(visitor: Visitor, totp: TOTP, later: int = 30) -> str:
    """Return a code that was not used before."""
    await visitor.api.sandbox.clock.advance(timedelta(seconds=later))
    return str(totp.at(await visitor.client.now()))


def read_offer(shown: httpx2.Response) -> str:
    found = re.search(r'name="offer" value="([^"]+)"', shown.text)
    assert found, shown.text
    return found[1]


async def begin(visitor: Visitor, password: str = PASSWORD) -> httpx2.Response:
    """Ask for a secret on the page of the own account."""
    return await visitor.post(SETUP, {"csrf": token_of(await visitor.get(SETUP)), "password": password})


async def confirm(visitor: Visitor, shown: httpx2.Response, path: str = SETUP, **fields: str) -> httpx2.Response:
    """Enter the code of the secret that this page shows."""
    given = {"offer": read_offer(shown), "code": await show_code(visitor, read_secret(shown))}
    return await visitor.post(path, given | ({"csrf": token_of(shown)} if path == SETUP else {}) | fields)


async def set_up(visitor: Visitor) -> tuple[TOTP, list[str]]:
    """Log in as Ana, and turn on her second factor."""
    await visitor.log_in()
    shown = await begin(visitor)
    totp = read_secret(shown)
    answer = await confirm(visitor, shown)
    assert answer.status_code == 200, answer.text
    codes = re.findall(r"[a-z2-7]{4}(?:-[a-z2-7]{4}){3}", answer.text)
    assert len(codes) == 10
    return totp, codes


async def test_after_the_password_a_code_is_asked_for(open_pages: OpenPages) -> None:
    async with open_pages(development=False) as visitor:
        totp, _ = await set_up(visitor)
        visitor.cookies.clear()
        answer = await visitor.log_in(to="/workers")
        assert answer.headers["location"] == "/login/code"
        assert "retoma" not in visitor.cookies
        assert (await visitor.get("/workers")).headers["location"].startswith("/login")
        opened = await visitor.post("/login/code", {"code": await show_code(visitor, totp)})
        assert (opened.status_code, opened.headers["location"]) == (303, "/workers")
        assert (await visitor.get("/workers")).status_code == 200
        actions = [entry.after for entry in await visitor.client.audit.list(action="person.log_in")]
        assert actions[0] == {"method": "password and app"}


async def test_a_wrong_code_opens_nothing_and_is_recorded(open_pages: OpenPages) -> None:
    async with open_pages(development=False) as visitor:
        totp, _ = await set_up(visitor)
        visitor.cookies.clear()
        await visitor.log_in()
        used = await show_code(visitor, totp)
        await visitor.post("/login/code", {"code": used})
        visitor.cookies.clear()
        await visitor.log_in()
        for wrong in ("000000", used, ""):
            answer = await visitor.post("/login/code", {"code": wrong})
            assert (answer.status_code, "retoma" in visitor.cookies) == (401, False)
            assert "The code is not correct, or was used before" in visible_text(answer)
        failed = await visitor.client.audit.list(action="person.log_in_failed")
        assert [(entry.actor_name, entry.after) for entry in failed] == [("Ana", {"failure": "wrong_code"})] * 3


async def test_a_recovery_code_replaces_the_phone_once(open_pages: OpenPages) -> None:
    async with open_pages(development=False) as visitor:
        _, codes = await set_up(visitor)
        for expected in (303, 401):
            visitor.cookies.clear()
            await visitor.log_in()
            assert (await visitor.post("/login/code", {"code": codes[0]})).status_code == expected


@pytest.mark.usefixtures("frozen_rate_limit")
async def test_guessing_codes_is_slow_for_each_person(open_pages: OpenPages) -> None:
    async with open_pages(development=False) as visitor:
        totp, _ = await set_up(visitor)
        visitor.cookies.clear()
        await visitor.log_in()
        answers = [await visitor.post("/login/code", {"code": "000000"}) for _ in range(CODES_PER_MINUTE)]
        assert answers[-1].status_code == 429
        assert (await visitor.post("/login/code", {"code": await show_code(visitor, totp)})).status_code == 429


async def test_the_code_page_needs_the_password_first(open_pages: OpenPages) -> None:
    async with open_pages(development=False) as visitor:
        totp, _ = await set_up(visitor)
        kept = dict(visitor.cookies)
        for cookies in ({}, {"retoma-second-factor": "forged"}):
            visitor.cookies = dict(cookies)
            assert (await visitor.get("/login/code")).headers["location"] == "/login"
            answer = await visitor.post("/login/code", {"code": await show_code(visitor, totp)})
            assert answer.headers["location"] == "/login?notice=login_expired"
            assert "retoma" not in visitor.cookies
        visitor.cookies = kept


@pytest.mark.parametrize("change", ["time", "password", "disabled"])
async def test_a_pending_login_ends_with_time_password_and_account(open_pages: OpenPages, change: str) -> None:
    async with open_pages(development=False) as visitor:
        totp, _ = await set_up(visitor)
        await add_person(visitor.client, BO)
        visitor.cookies.clear()
        await visitor.log_in()
        ana = await visitor.client.people.get(ADMINISTRATOR)
        if change == "time":
            await visitor.api.sandbox.clock.advance(TIME_TO_ENTER)
        elif change == "password":
            await people.set_password(visitor.client.database, ana.id, f"{HASH} of another password")
        else:
            await visitor.client.people.disable(ADMINISTRATOR)
        answer = await visitor.post("/login/code", {"code": await show_code(visitor, totp)})
        assert answer.headers["location"] == "/login?notice=login_expired"
        assert "retoma" not in visitor.cookies


@pytest.mark.parametrize(
    ("setting", "role", "is_asked"),
    [
        ("optional", Role.ADMINISTRATOR, False),
        ("administrators", Role.OPERATOR, False),
        ("administrators", Role.ADMINISTRATOR, True),
        ("everyone", Role.VIEWER, True),
    ],
)
async def test_the_setting_says_who_must_have_one(
    open_pages: OpenPages, setting: str, role: Role, is_asked: bool
) -> None:
    async with open_pages(development=False, second_factor=setting) as visitor:
        await add_person(visitor.client, BO, role)
        answer = await visitor.log_in(email=BO)
        assert (answer.headers["location"] == "/login/second-factor") is is_asked
        assert ("retoma" in visitor.cookies) is not is_asked


async def test_a_required_factor_is_set_up_before_the_first_page(open_pages: OpenPages) -> None:
    async with open_pages(development=False, second_factor="everyone") as visitor:
        await visitor.log_in(to="/workers")
        shown = await visitor.get("/login/second-factor")
        assert "This server requires a second factor" in visible_text(shown)
        assert "<svg" in shown.text
        wrong = await confirm(visitor, shown, "/login/second-factor", code="000000")
        assert (wrong.status_code, "retoma" in visitor.cookies) == (401, False)
        assert read_secret(wrong).secret == read_secret(shown).secret
        answer = await confirm(visitor, wrong, "/login/second-factor")
        assert answer.status_code == 200
        assert 'href="/workers"' in answer.text
        assert (await visitor.get("/workers")).status_code == 200
        actions = [entry.action for entry in await visitor.client.audit.list(actor="Ana")]
        assert actions == ["person.log_in", "person.set_second_factor"]


async def test_a_required_factor_cannot_be_turned_off(open_pages: OpenPages) -> None:
    async with open_pages(development=False, second_factor="everyone") as visitor:
        await visitor.log_in()
        shown = await visitor.get("/login/second-factor")
        totp = read_secret(shown)
        await confirm(visitor, shown, "/login/second-factor")
        own = await visitor.get(SETUP)
        assert "Turn off" not in visible_text(own)
        fields = {"csrf": token_of(own), "code": await show_code(visitor, totp), "action": "remove"}
        assert (await visitor.post(SETUP, fields)).status_code == 409
        assert (await visitor.client.people.get(ADMINISTRATOR)).has_second_factor


async def test_turning_it_off_or_renewing_codes_takes_a_code(open_pages: OpenPages) -> None:
    async with open_pages(development=False) as visitor:
        totp, codes = await set_up(visitor)
        csrf = token_of(await visitor.get(SETUP))
        assert (await visitor.post(SETUP, {"csrf": csrf, "code": "", "action": "remove"})).status_code == 422
        fresh = await visitor.post(SETUP, {"csrf": csrf, "code": await show_code(visitor, totp), "action": "renew"})
        assert codes[0] not in fresh.text
        fields = {"csrf": csrf, "code": await show_code(visitor, totp), "action": "remove"}
        assert (await visitor.post(SETUP, fields)).headers["location"] == "/account?notice=second_factor_removed"
        visitor.cookies.clear()
        assert (await visitor.log_in()).headers["location"] == "/"
        actions = [
            entry.action for entry in await visitor.client.audit.list(actor="Ana") if "log_in" not in entry.action
        ]
        assert actions == [
            "person.remove_second_factor",
            "person.renew_recovery_codes",
            "person.set_second_factor",
        ]


async def test_an_administrator_removes_the_factor_of_another(open_pages: OpenPages) -> None:
    async with open_pages(development=False) as visitor:
        await set_up(visitor)
        visitor.cookies.clear()
        await add_person(visitor.client, BO)
        await visitor.log_in(email=BO)
        shown = await visitor.get("/people")
        assert "Remove the second factor" in visible_text(shown)
        fields = {"csrf": token_of(shown), "email": ADMINISTRATOR}
        assert (await visitor.post("/people/second-factor", fields)).status_code == 303
        (entry,) = await visitor.client.audit.list(action="person.remove_second_factor")
        assert (entry.actor_name, entry.after) == ("Bo", {"email": ADMINISTRATOR})
        visitor.cookies.clear()
        assert (await visitor.log_in()).headers["location"] == "/"


async def test_the_picture_needs_no_inline_style(open_pages: OpenPages) -> None:
    drawn = draw_qr_code("otpauth://totp/Retoma:ana@example.com?secret=ABC&issuer=Retoma")
    assert "style" not in drawn
    assert "otpauth" not in drawn
    async with open_pages(development=False) as visitor:
        await visitor.log_in()
        assert "no-store" in (await begin(visitor)).headers["cache-control"]


async def test_an_open_browser_is_not_enough_to_set_it_up(open_pages: OpenPages) -> None:
    async with open_pages(development=False) as visitor:
        await visitor.log_in()
        assert "qr-code" not in (await visitor.get(SETUP)).text
        wrong = await begin(visitor, "not the password")
        assert (wrong.status_code, "qr-code" in wrong.text) == (422, False)
        csrf = token_of(wrong)
        for fields in ({"code": "000000"}, {"code": "000000", "offer": "forged"}):
            assert "qr-code" not in (await visitor.post(SETUP, {"csrf": csrf, **fields})).text


async def test_nobody_who_saw_an_earlier_secret_knows_the_one_that_is_confirmed(open_pages: OpenPages) -> None:
    async with open_pages(development=False) as visitor:
        await visitor.log_in()
        first, second = await begin(visitor), await begin(visitor)
        assert read_secret(first).secret != read_secret(second).secret


@pytest.mark.parametrize("change", ["time", "password", "person"])
async def test_an_offered_secret_ends_with_time_and_password_and_is_one_persons(
    open_pages: OpenPages, change: str
) -> None:
    async with open_pages(development=False) as visitor:
        await visitor.log_in()
        shown = await begin(visitor)
        csrf = token_of(shown)
        if change == "time":
            await visitor.api.sandbox.clock.advance(TIME_TO_SET_UP)
        elif change == "password":
            fields = {"current": PASSWORD, "password": f"{PASSWORD}!", "again": f"{PASSWORD}!"}
            await visitor.post("/account/password", {"csrf": csrf, **fields})
        else:
            await add_person(visitor.client, BO)
            await visitor.log_in(email=BO)
            csrf = token_of(await visitor.get(SETUP))
        answer = await confirm(visitor, shown, csrf=csrf)
        assert answer.headers["location"] == f"{SETUP}?notice=setup_expired"
        assert not any(each.has_second_factor for each in await visitor.client.people.list())


async def test_without_a_password_it_takes_a_fresh_login(open_pages: OpenPages) -> None:
    """As after single sign-on."""
    async with open_pages(development=False) as visitor:
        await visitor.log_in()
        await rows(visitor.api.sandbox, "update retoma.people set password_hash = null")
        csrf = token_of(await visitor.get(SETUP))
        assert "qr-code" in (await visitor.post(SETUP, {"csrf": csrf})).text
        await visitor.api.sandbox.clock.advance(FRESH_LOGIN + timedelta(seconds=1))
        assert "your login must be less than 15 minutes old" in visible_text(await visitor.get(SETUP))
        assert "qr-code" not in (await visitor.post(SETUP, {"csrf": csrf})).text


async def test_the_developer_has_no_second_factor(open_pages: OpenPages) -> None:
    async with open_pages() as visitor:
        assert (await visitor.get(SETUP)).status_code == 404
