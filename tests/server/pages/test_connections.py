"""The pages of connections: what is entered, what is shown, and what a test says."""

from __future__ import annotations

import httpx2

from retoma.records import Role
from tests.server.pages.visitor import OpenPages, Visitor, token_of, visible_text
from tests.server.people import PASSWORD, add_person

CANARY = "CANARY-9e2b40d7"
NAMED = {"service": "studio", "tenant": "blog", "account": ""}


async def enter(visitor: Visitor, key: str = CANARY, **fields: str) -> httpx2.Response:
    page = await visitor.get("/connections/edit/studio")
    typed = {**NAMED, "field.api_key": key, "field.base_url": "", "field.voice": "", **fields}
    return await visitor.post("/connections", {"csrf": token_of(page), **typed})


async def submit(visitor: Visitor, action: str, **named: str) -> httpx2.Response:
    page = await visitor.get("/connections")
    return await visitor.post(f"/connections/{action}", {"csrf": token_of(page), **NAMED, **named})


async def test_a_connection_is_entered_and_shown_without_its_secret(open_pages: OpenPages) -> None:
    async with open_pages() as visitor:
        await visitor.client.start("film", {}, tenant="blog")
        assert (await enter(visitor, **{"field.voice": "Rosa"})).status_code == 303
        for path in ("/connections", "/connections/edit/studio?tenant=blog"):
            page = await visitor.get(path)
            assert CANARY not in page.text
            assert "Rosa" in page.text
        assert "set; leave empty to keep it" in page.text


async def test_an_empty_secret_keeps_the_one_that_is_set(open_pages: OpenPages) -> None:
    async with open_pages() as visitor:
        await enter(visitor)
        assert (await enter(visitor, "", **{"field.voice": "Rosa"})).status_code == 303
        shown = await visitor.client.connections.get("studio", tenant="blog")
        assert (shown.settings, shown.secret_fields) == ({"voice": "Rosa"}, ("api_key",))


async def test_an_error_keeps_the_fields_but_not_the_secret(open_pages: OpenPages) -> None:
    async with open_pages() as visitor:
        refused = await enter(visitor, **{"field.base_url": "http://10.0.0.1", "field.voice": "Rosa"})
        assert refused.status_code == 422
        assert "10.0.0.1" in refused.text
        assert 'value="Rosa"' in refused.text
        assert CANARY not in refused.text


async def test_a_test_says_that_it_works_or_what_is_wrong(open_pages: OpenPages) -> None:
    async with open_pages() as visitor:
        await enter(visitor)
        assert "it works. reached the default address" in visible_text(await submit(visitor, "test"))
        await enter(visitor, f"wrong-{CANARY}")
        failed = await submit(visitor, "test")
        assert "it does not work. the key [studio.api_key] was rejected" in visible_text(failed)
        assert 'role="alert"' in failed.text
        assert "does not work" in visible_text(await visitor.get("/connections"))


async def test_a_deleted_connection_is_gone(open_pages: OpenPages) -> None:
    async with open_pages() as visitor:
        await enter(visitor)
        assert (await submit(visitor, "delete")).status_code == 303
        assert await visitor.client.connections.list() == []


async def test_hostile_values_are_escaped(open_pages: OpenPages) -> None:
    async with open_pages() as visitor:
        script = "<script>alert(1)</script>"
        await enter(visitor, **{"field.voice": script, "account": script})
        for path in ("/connections", "/connections/edit/studio?tenant=blog&account=%3Cscript%3E"):
            assert script not in (await visitor.get(path)).text


async def test_an_administrator_of_a_tenant_sees_and_sets_only_its_own(open_pages: OpenPages) -> None:
    async with open_pages(development=False) as visitor:
        await visitor.client.connections.set("studio", {"api_key": "shared", "voice": "of-all"})
        await visitor.client.connections.set("studio", {"api_key": "other", "voice": "of-shop"}, tenant="shop")
        await visitor.client.start("film", {}, tenant="blog")
        await add_person(visitor.client, "bia@example.com", Role.ADMINISTRATOR, "blog")
        await visitor.log_in(PASSWORD, "bia@example.com")
        assert (await enter(visitor)).status_code == 303
        text = (await visitor.get("/connections")).text
        assert ("of-all" in text, "of-shop" in text, "RETOMA_SMTP_HOST" in text) == (False, False, False)
        for tenant in ("shop", "*"):
            assert (await submit(visitor, "test", tenant=tenant)).status_code == 403
            assert (await enter(visitor, tenant=tenant)).status_code == 403


async def test_the_smtp_server_is_entered_for_all_tenants_only(open_pages: OpenPages) -> None:
    async with open_pages() as visitor:
        await visitor.client.start("film", {}, tenant="blog")
        page = await visitor.get("/connections/edit/smtp")
        assert "<option>blog</option>" not in page.text
        assert (
            visible_text(await visitor.get("/connections")).count("RETOMA_SMTP_HOST") == 2
        )  # to add it, and to test it
        fields = {"service": "smtp", "tenant": "*", "field.host": "mail.example.com", "field.from": "a@example.com"}
        assert (await visitor.post("/connections", {"csrf": token_of(page), **fields})).status_code == 303
        assert "RETOMA_SMTP_HOST" not in (await visitor.get("/connections")).text


async def test_an_operator_has_no_such_page(open_pages: OpenPages) -> None:
    async with open_pages(development=False) as visitor:
        await add_person(visitor.client, "olga@example.com", Role.OPERATOR)
        await visitor.log_in(PASSWORD, "olga@example.com")
        assert (await visitor.get("/connections")).status_code == 403
        assert 'href="/connections"' not in (await visitor.get("/queues")).text


async def test_the_page_is_in_portuguese_too(open_pages: OpenPages) -> None:
    async with open_pages() as visitor:
        await enter(visitor)
        text = visible_text(await visitor.get("/connections?lang=pt"))
        assert "Conexões" in text
        assert "não testada" in text
