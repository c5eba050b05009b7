"""Budgets, over HTTP."""

from __future__ import annotations

from tests.server.api import Api
from tests.server.conftest import OpenApi

PATH = "/api/v1/budgets/blog/month"


async def test_a_budget_is_created_changed_listed_and_removed(open_api: OpenApi) -> None:
    async with open_api() as api:
        created = await api.call("PUT", PATH, json={"micros": 50_000_000})
        assert (created.status_code, created.json()["budget"]["action"]) == (200, "review")
        await api.call("PUT", PATH, json={"micros": 60_000_000, "action": "notify"})
        (listed,) = (await api.get("/api/v1/budgets")).json()["budgets"]
        assert (listed["budget"]["micros"], listed["budget"]["action"], listed["spent"]) == (60_000_000, "notify", 0)
        assert (await api.call("DELETE", PATH)).status_code == 204
        assert (await api.get(PATH)).json()["code"] == "NOT_FOUND"


async def test_a_budget_of_a_pipeline_is_another_one(open_api: OpenApi) -> None:
    async with open_api() as api:
        await api.call("PUT", PATH, json={"micros": 1})
        await api.call("PUT", f"{PATH}?pipeline=film", json={"micros": 2})
        assert (await api.get(f"{PATH}?pipeline=film")).json()["budget"]["micros"] == 2
        assert (await api.get(PATH)).json()["budget"]["micros"] == 1


async def test_the_budgets_of_a_run_say_what_it_has_used(open_api: OpenApi) -> None:
    async with open_api() as api:
        run = await make_run(api)
        await api.call("PUT", "/api/v1/budgets/blog/run", json={"micros": 5})
        await api.call("PUT", "/api/v1/budgets/shop/run", json={"micros": 5})
        (found,) = (await api.get(f"/api/v1/budgets?run={run}")).json()["budgets"]
        assert (found["budget"]["tenant"], found["spent"]) == ("blog", 0)


async def make_run(api: Api) -> str:
    answer = await api.post("/api/v1/runs", json={"pipeline": "film", "tenant": "blog"})
    return str(answer.json()["id"])


async def test_the_history_has_a_period_for_each_month(open_api: OpenApi) -> None:
    async with open_api() as api:
        await api.call("PUT", PATH, json={"micros": 5})
        periods = (await api.get(f"{PATH}/history?periods=3")).json()["periods"]
        assert [each["spent"] for each in periods] == [0, 0, 0]
        assert len({each["starts_at"] for each in periods}) == 3


async def test_a_currency_comes_with_a_rate_and_its_date(open_api: OpenApi) -> None:
    async with open_api() as api:
        path = "/api/v1/tenants/blog/money"
        assert (await api.call("PUT", path, json={"currency": "BRL"})).status_code == 422
        body = {"currency": "BRL", "rate": 5.4, "rate_date": "2026-11-02", "time_zone": "America/Sao_Paulo"}
        assert (await api.call("PUT", path, json=body)).status_code == 200
        assert (await api.get(path)).json()["time_zone"] == "America/Sao_Paulo"
