"""Titles of runs, wherever the API names a run."""

from __future__ import annotations

from collections.abc import AsyncIterator

import pytest

from tests.server import titled
from tests.server.api import Api
from tests.server.conftest import OpenApi
from tests.server.test_live import parse_stream


@pytest.fixture
async def api(open_api: OpenApi) -> AsyncIterator[Api]:
    async with open_api(application=titled.app) as made:
        yield made


async def test_a_run_is_shown_with_its_title(api: Api) -> None:
    body = {"pipeline": "news", "input": {"topic": "tea"}}
    run = (await api.post("/api/v1/runs", json=body)).json()["id"]
    await api.post("/api/v1/runs/bulk", json={"pipeline": "news", "inputs": [{"topic": "milk"}]})
    assert (await api.get(f"/api/v1/runs/{run}")).json()["title"] == "News: tea"
    assert [one["title"] for one in (await api.get("/api/v1/runs")).json()["runs"]] == ["News: milk", "News: tea"]


async def test_runs_are_found_by_a_part_of_their_title(api: Api) -> None:
    for tenant, topic in (("shop", "Green tea"), ("shop", "milk"), ("other", "black TEA")):
        await api.client.start("news", {"topic": topic}, tenant=tenant)

    async def find(title: str, **options: str) -> list[str]:
        answer = await api.get("/api/v1/runs", params={"title": title, **options}, key=key)
        assert answer.status_code == 200, answer.text
        return [one["title"] for one in answer.json()["runs"]]

    key = api.key
    assert await find("tea") == ["News: black TEA", "News: Green tea"]
    assert await find("tea", tenant="shop") == ["News: Green tea"]
    assert await find("tea", state="failed") == await find("%") == await find("' or true --") == []
    key = await api.make_key("runs:read", tenant="other")
    assert await find("tea") == ["News: black TEA"]
    assert await find("milk") == []
    assert (await api.get("/api/v1/runs", params={"title": "\0"})).status_code == 422


async def test_a_run_without_a_title_has_null(open_api: OpenApi) -> None:
    async with open_api() as api:
        run = await api.start()
        assert (await api.get(f"/api/v1/runs/{run}")).json()["title"] is None


async def test_a_review_names_the_title_of_its_run(api: Api) -> None:
    run = await titled.start_until_review(api.sandbox)
    (review,) = (await api.get("/api/v1/reviews")).json()["reviews"]
    assert (review["run"], review["run_title"]) == (str(run), "News: tea")
    assert (await api.get(f"/api/v1/reviews/{review['id']}")).json()["run_title"] == "News: tea"


async def test_a_stuck_run_has_its_title(api: Api) -> None:
    await titled.start_until_stuck(api.sandbox)
    assert [one["run_title"] for one in (await api.get("/api/v1/stuck")).json()["stuck"]] == ["News: tea"]


async def test_a_delivery_names_the_title_of_its_run(api: Api) -> None:
    await titled.start_with_dead_delivery(api.sandbox)
    (delivery,) = (await api.get("/api/v1/deliveries")).json()["deliveries"]
    assert delivery["run_title"] == "News: tea"
    assert (await api.get(f"/api/v1/deliveries/{delivery['id']}")).json()["run_title"] == "News: tea"


async def test_live_events_name_the_title_of_their_run(api: Api) -> None:
    run = await titled.start_until_review(api.sandbox)
    for path in (f"/api/v1/runs/{run}/live", "/api/v1/live"):
        stream = parse_stream((await api.get(path, params={"follow": "false", "after": "0"})).text)
        assert {(one["run"], one["run_title"]) for one in stream.data if "kind" in one} == {(str(run), "News: tea")}


async def test_the_api_describes_titles(api: Api) -> None:
    schemas = (await api.get("/api/v1/openapi.json")).json()["components"]["schemas"]
    assert "title" in schemas["RunSummary"]["properties"]
    assert "title" in schemas["RunSummary"]["required"]
    for name in ("Review", "StuckRun", "Delivery"):
        assert "run_title" in schemas[name]["properties"]
