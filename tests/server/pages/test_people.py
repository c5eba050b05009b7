"""Accounts on the pages: invitations, passwords, sessions, roles and profiles."""

from __future__ import annotations

import re
from datetime import timedelta

import httpx2
import pytest

from retoma.records import Role
from tests.server.pages.visitor import OpenPages, Visitor, token_of, visible_text
from tests.server.people import PASSWORD, add_person

NEW = "quite another password"
BEA = "bea@example.com"


async def submit(visitor: Visitor, page: str, path: str, **fields: str) -> httpx2.Response:
    return await visitor.post(path, {"csrf": token_of(await visitor.get(page)), **fields})


async def invite(visitor: Visitor, **fields: str) -> str:
    """Invite Bea on the page, and return the path of the link."""
    given = {"name": "Bea", "email": BEA, "role": "reviewer", "tenant": "*"} | fields
    answer = await submit(visitor, "/people", "/people", **given)
    found = re.search(r"/set-password/[\w-]+", answer.text)
    assert found, answer.text
    return found[0]


async def test_an_invited_person_sets_a_password_once_and_is_logged_in(open_pages: OpenPages) -> None:
    async with open_pages(development=False) as visitor:
        await visitor.log_in()
        link = await invite(visitor)
        bea = Visitor(visitor.api)
        assert "Welcome, Bea" in (await bea.get(link)).text
        answer = await bea.post(link, {"password": NEW, "again": NEW})
        assert answer.headers["location"] == "/"
        assert "Your account: Bea" in (await bea.get("/reviews")).text
        assert (await Visitor(visitor.api).post(link, {"password": PASSWORD, "again": PASSWORD})).status_code == 410
        assert (await Visitor(visitor.api).log_in(NEW, BEA)).status_code == 303


@pytest.mark.parametrize(("password", "again"), [("short", "short"), (NEW, f"{NEW}!")])
async def test_a_link_survives_a_password_that_is_refused(open_pages: OpenPages, password: str, again: str) -> None:
    async with open_pages(development=False) as visitor:
        await visitor.log_in()
        link, bea = await invite(visitor), Visitor(visitor.api)
        assert (await bea.post(link, {"password": password, "again": again})).status_code == 422
        assert (await bea.post(link, {"password": NEW, "again": NEW})).status_code == 303


async def test_an_invitation_expires(open_pages: OpenPages) -> None:
    async with open_pages(development=False) as visitor:
        await visitor.log_in()
        link = await invite(visitor)
        await visitor.api.sandbox.clock.advance(timedelta(days=7))
        assert (await Visitor(visitor.api).get(link)).status_code == 410


async def test_a_new_password_ends_the_other_sessions_only(open_pages: OpenPages) -> None:
    async with open_pages(development=False) as visitor:
        other = Visitor(visitor.api)
        await visitor.log_in()
        await other.log_in()
        fields = {"current": PASSWORD, "password": NEW, "again": NEW}
        wrong = await submit(visitor, "/account", "/account/password", **fields | {"current": "wrong"})
        assert (wrong.status_code, (await other.get("/account")).status_code) == (422, 200)
        assert (await submit(visitor, "/account", "/account/password", **fields)).status_code == 303
        assert (await visitor.get("/account")).status_code == 200
        assert (await other.get("/account")).headers["location"].startswith("/login")


async def test_sessions_are_listed_and_ended_one_by_one(open_pages: OpenPages) -> None:
    async with open_pages(development=False) as visitor:
        others = [Visitor(visitor.api), Visitor(visitor.api)]
        for each in (visitor, *others):
            await each.log_in()
        numbers = re.findall(r'name="session" value="(\d+)"', (await visitor.get("/account")).text)
        assert len(numbers) == 2  # one cannot end the session in which one is
        await submit(visitor, "/account", "/account/sessions", session=numbers[0])
        statuses = [(await each.get("/account")).status_code for each in others]
        assert sorted(statuses) == [200, 303]


async def test_nobody_ends_the_session_of_another_person(open_pages: OpenPages) -> None:
    async with open_pages(development=False) as visitor:
        await visitor.log_in()
        await add_person(visitor.client, BEA, Role.VIEWER)
        bea = Visitor(visitor.api)
        await bea.log_in(PASSWORD, BEA)
        (session,) = await visitor.client.people.list_sessions("ana@example.com")
        await submit(bea, "/account", "/account/sessions", session=str(session.id))
        assert (await visitor.get("/account")).status_code == 200


async def test_a_disabled_person_is_logged_out_and_cannot_log_in(open_pages: OpenPages) -> None:
    async with open_pages(development=False) as visitor:
        await visitor.log_in()
        await add_person(visitor.client, BEA, Role.VIEWER)
        bea = Visitor(visitor.api)
        await bea.log_in(PASSWORD, BEA)
        await submit(visitor, "/people", "/people/disable", email=BEA)
        assert (await bea.get("/runs")).status_code == 303
        assert (await bea.log_in(PASSWORD, BEA)).status_code == 401
        await submit(visitor, "/people", "/people/enable", email=BEA)
        assert (await bea.log_in(PASSWORD, BEA)).status_code == 303


async def test_the_last_administrator_cannot_be_disabled(open_pages: OpenPages) -> None:
    async with open_pages(development=False) as visitor:
        await visitor.log_in()
        answer = await submit(visitor, "/people", "/people/disable", email="ana@example.com")
        assert (answer.status_code, "only administrator" in visible_text(answer)) == (409, True)


async def test_a_role_applies_at_once(open_pages: OpenPages) -> None:
    async with open_pages(development=False) as visitor:
        run = await visitor.client.start("film", {}, tenant="blog")
        await visitor.log_in()
        await add_person(visitor.client, BEA, None)
        bea = Visitor(visitor.api)
        await bea.log_in(PASSWORD, BEA)
        assert (await bea.get("/runs")).status_code == 403
        await submit(visitor, "/people", "/people/role", email=BEA, role="viewer", tenant="blog")
        assert (await bea.get(f"/runs/{run.id}")).status_code == 200
        await submit(visitor, "/people", "/people/role", email=BEA, role="", tenant="blog")
        assert (await bea.get(f"/runs/{run.id}")).status_code == 403


async def test_an_administrator_of_one_tenant_takes_over_no_account_of_others(open_pages: OpenPages) -> None:
    async with open_pages(development=False) as visitor:
        await add_person(visitor.client, BEA, Role.ADMINISTRATOR, "blog")
        await add_person(visitor.client, "eva@example.com", Role.VIEWER, "blog")
        await visitor.client.people.set_role("eva@example.com", Role.OPERATOR, tenant="shop")
        await visitor.log_in(PASSWORD, BEA)
        assert "shop" not in visible_text(await visitor.get("/people"))
        for path in ("link", "disable", "end-sessions"):
            assert (await submit(visitor, "/people", f"/people/{path}", email="eva@example.com")).status_code == 403
        everywhere = {"email": BEA, "role": "administrator", "tenant": "*"}
        assert (await submit(visitor, "/people", "/people/role", **everywhere)).status_code == 403


async def test_only_administrators_erase_a_run_on_its_page(open_pages: OpenPages) -> None:
    async with open_pages(development=False) as visitor:
        run = await visitor.client.start("film", {}, tenant="blog")
        await visitor.client.runs.cancel(run.id)
        await add_person(visitor.client, BEA, Role.OPERATOR, "blog")
        path = f"/runs/{run.id}/erase"
        await visitor.log_in()
        assert path in (await visitor.get(f"/runs/{run.id}")).text
        operator = Visitor(visitor.api)
        await operator.log_in(PASSWORD, BEA)
        assert path not in (await operator.get(f"/runs/{run.id}")).text
        assert (await submit(operator, f"/runs/{run.id}", path)).status_code == 403
        erased = await submit(visitor, f"/runs/{run.id}", path)
        assert "deleted within three days" in visible_text(await visitor.get(erased.headers["location"]))
        assert (await visitor.get(f"/runs/{run.id}")).status_code == 404


async def test_language_and_time_zone_are_the_persons(open_pages: OpenPages) -> None:
    async with open_pages(development=False) as visitor:
        await visitor.log_in()
        fields = {"name": "Ana Souza", "language": "pt", "time_zone": "America/Sao_Paulo"}
        assert (await submit(visitor, "/account", "/account", **fields)).status_code == 303
        page = await visitor.get("/account", Accept_Language="en")
        assert "Sua conta" in page.text
        assert "America/Sao_Paulo" in visible_text(page)
        assert (await submit(visitor, "/account", "/account", **fields | {"time_zone": "Nowhere"})).status_code == 422


async def test_history_names_the_person(open_pages: OpenPages) -> None:
    async with open_pages(development=False) as visitor:
        run = await visitor.client.start("film", {})
        await visitor.log_in()
        await submit(visitor, f"/runs/{run.id}", f"/runs/{run.id}/cancel")
        authors = [(event.data or {}).get("by") for event in await visitor.client.runs.list_events(run.id)]
        assert "Ana" in authors


async def test_a_server_without_accounts_says_how_to_begin(open_pages: OpenPages) -> None:
    async with open_pages() as visitor:
        assert "Nobody has an account yet" in visible_text(await visitor.get("/people"))
