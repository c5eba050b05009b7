"""Connections, over HTTP: secrets go in and never come out."""

from __future__ import annotations

import logging

import pytest

from retoma import App, Pipeline, Retry
from retoma.connections import PerTenant, TenantConnections
from tests.engine.builders import rows
from tests.server.api import Api
from tests.server.conftest import OpenApi
from tests.studio import STUDIO

CANARY = "CANARY-3a8f61c4"
PATH = "/api/v1/connections/blog/studio"


async def enter(api: Api, path: str = PATH, **fields: str) -> None:
    answer = await api.call("PUT", path, json={"fields": {"api_key": CANARY, **fields}})
    assert answer.status_code == 200, answer.text


async def test_a_connection_is_entered_changed_tested_and_deleted(open_api: OpenApi) -> None:
    async with open_api() as api:
        await enter(api, voice="Rosa")
        changed = await api.call("PUT", PATH, json={"fields": {"voice": "Luís"}})
        assert (changed.json()["settings"], changed.json()["secret_fields"]) == ({"voice": "Luís"}, ["api_key"])
        tested = (await api.post(f"{PATH}/test")).json()
        assert tested == {"is_ok": True, "message": "reached the default address"}
        assert (await api.get(PATH)).json()["tested_at"] is not None
        assert (await api.call("DELETE", PATH)).status_code == 204
        assert (await api.get(PATH)).json()["code"] == "NOT_FOUND"


async def test_the_star_names_all_tenants(open_api: OpenApi) -> None:
    async with open_api() as api:
        await enter(api, "/api/v1/connections/*/studio")
        await enter(api)
        listed = (await api.get("/api/v1/connections")).json()["connections"]
        assert [each["tenant"] for each in listed] == [None, "blog"]
        usable = (await api.get("/api/v1/connections", params={"tenant": "shop"})).json()["connections"]
        assert [each["tenant"] for each in usable] == [None]


async def test_a_key_of_one_tenant_reaches_neither_that_of_all_nor_of_another(open_api: OpenApi) -> None:
    async with open_api() as api:
        await enter(api, "/api/v1/connections/*/studio")
        await enter(api)
        key = await api.make_key("connections:write", tenant="shop")
        assert (await api.get("/api/v1/connections", key=key)).json() == {"connections": []}
        for path in (PATH, "/api/v1/connections/*/studio"):
            for method, body in (("GET", None), ("PUT", {"fields": {"api_key": "x"}}), ("DELETE", None)):
                answer = await api.call(method, path, key=key, json=body)
                assert answer.status_code == 403
            assert (await api.post(f"{path}/test", key=key)).status_code == 403


async def test_an_invalid_connection_is_refused_without_its_secret(open_api: OpenApi) -> None:
    async with open_api() as api:
        for fields in ({"api_key": f"{CANARY}\r\nX: 1"}, {"api_key": CANARY, "base_url": "http://10.0.0.1"}):
            answer = await api.call("PUT", PATH, json={"fields": fields})
            assert (answer.status_code, answer.json()["code"]) == (422, "INVALID_INPUT")
            assert CANARY not in answer.text
        listed = await api.call("PUT", PATH, json={"fields": {"api_key": [CANARY]}})
        assert (listed.status_code, CANARY in listed.text) == (422, False)
        unknown = await api.call("PUT", "/api/v1/connections/blog/studoi", json={"fields": {}})
        assert (unknown.status_code, "did you mean 'studio'" in unknown.text) == (404, True)


async def test_the_services_say_what_they_need(open_api: OpenApi) -> None:
    async with open_api() as api:
        found = (await api.get("/api/v1/connection-services")).json()["services"]
        studio = next(each for each in found if each["service"] == "studio")
        assert [(field["name"], field["kind"], field["required"]) for field in studio["fields"]] == [
            ("api_key", "secret", True),
            ("base_url", "url", False),
            ("voice", "text", False),
        ]
        assert {each["service"] for each in found if not each["fields"]} == {"files"}


async def test_a_server_without_the_right_key_says_so(open_api: OpenApi) -> None:
    async with open_api() as api:
        await enter(api)
        await rows(api.sandbox, "update retoma.connections set key_id = 'another'")
        answer = await api.post(f"{PATH}/test")
        assert (answer.status_code, answer.json()["code"]) == (409, "CONNECTION_KEY_MISSING")


@pytest.mark.parametrize("language", ["en", "pt"])
async def test_a_secret_shows_in_no_log_page_event_error_or_table(
    open_api: OpenApi, caplog: pytest.LogCaptureFixture, language: str
) -> None:
    pipeline = Pipeline("song", retry=Retry(0))

    @pipeline.step
    def sung(*, studio: str) -> str:
        raise ValueError(f"cannot sing with {studio}")

    def build(connections: TenantConnections) -> str:
        return (connections.find("studio") or {"api_key": "environment"})["api_key"]

    application = App("songs", pipelines=[pipeline], resources={"studio": PerTenant(build)}, connections=[STUDIO])
    async with open_api(application=application, development=True, address="127.0.0.1", host="127.0.0.1:8765") as api:
        wrong = f"wrong-{CANARY}"
        with caplog.at_level(logging.DEBUG):
            await api.call("PUT", PATH, json={"fields": {"api_key": wrong}})
            run = await api.sandbox.run(pipeline, tenant="blog")
            answers = [
                await api.post(f"{PATH}/test"),
                *[await api.get(path) for path in (PATH, "/api/v1/connections", f"/api/v1/runs/{run.id}")],
                await api.get(f"/api/v1/runs/{run.id}/events"),
                await api.get("/api/v1/audit"),
            ]
            pages = [
                f"{page}?lang={language}" for page in ("/connections", "/connections/edit/studio", f"/runs/{run.id}")
            ]
            pages += [f"/connections/edit/studio?tenant=blog&lang={language}", "/audit"]
            shown = [await api.get(page, headers={"Cookie": f"retoma-dev-8765={api.key}"}) for page in pages]
        assert run.state == "failed"
        assert "was rejected" in answers[0].text
        logged = "".join(str(each.__dict__) for each in caplog.records if not each.name.startswith("http"))
        tables = await rows(
            api.sandbox, "select table_name from information_schema.tables where table_schema = 'retoma'"
        )
        stored = [await rows(api.sandbox, f"select t::text from retoma.{each['table_name']} t") for each in tables]
        for text in (*(each.text for each in (*answers, *shown)), logged, str(stored)):
            assert CANARY not in text
