"""Charges of runs, over HTTP."""

from __future__ import annotations

from typing import Any

from retoma import App, Context, Pipeline, Retry
from tests.server.api import Api
from tests.server.conftest import OpenApi

paid = Pipeline("film", retry=Retry(1, delays=[1], jitter=0))


@paid.step
def script(*, ctx: Context) -> str:
    ctx.charge("openrouter", "small", tokens_in=10, micros=40)
    if ctx.attempt == 1:
        raise ValueError("not this time")
    return "once"


@paid.step
def voice(script: str, *, ctx: Context) -> str:
    ctx.charge("speech", "anna", units=3)
    return script


async def make_run(api: Api, tenant: str = "blog") -> str:
    return str((await api.sandbox.run("film", tenant=tenant)).id)


async def get(api: Api, path: str, **options: Any) -> Any:
    answer = await api.get(path, **options)
    assert answer.status_code == 200, answer.text
    return answer.json()


async def test_a_run_lists_every_charge_and_its_sums_by_step(open_api: OpenApi) -> None:
    async with open_api(application=App("films", pipelines=[paid])) as api:
        run = await make_run(api)
        body = await get(api, f"/api/v1/runs/{run}/charges")
        assert body["micros"] == 80
        assert [(each["step"], each["attempt"], each["micros"]) for each in body["charges"]] == [
            ("script", 1, 40),
            ("script", 2, 40),
            ("voice", 1, None),
        ]
        assert [(each["step"], each["micros"], each["unpriced"]) for each in body["totals"]] == [
            ("script", 80, 0),
            ("voice", 0, 1),
        ]


async def test_charges_come_in_pages(open_api: OpenApi) -> None:
    async with open_api(application=App("films", pipelines=[paid])) as api:
        path = f"/api/v1/runs/{await make_run(api)}/charges"
        first = await get(api, path, params={"limit": 2})
        rest = await get(api, path, params={"limit": 2, "after": first["next"]})
        assert [len(first["charges"]), len(rest["charges"]), rest["next"]] == [2, 1, None]


async def test_a_tenant_sees_its_own_sums_only(open_api: OpenApi) -> None:
    async with open_api(application=App("films", pipelines=[paid])) as api:
        theirs = await make_run(api, "blog")
        await make_run(api, "shop")
        shop = await api.make_key("runs:read", tenant="shop")
        everything = await get(api, "/api/v1/charges")
        assert {each["tenant"]: each["micros"] for each in everything["totals"]} == {"blog": 80, "shop": 80}
        own = await get(api, "/api/v1/charges", key=shop, params={"by": ["tenant", "provider"]})
        assert {(each["tenant"], each["provider"]) for each in own["totals"]} == {
            ("shop", "openrouter"),
            ("shop", "speech"),
        }
        assert (await get(api, "/api/v1/charges", key=shop, params={"tenant": "blog"}))["totals"] == []
        assert (await api.get(f"/api/v1/runs/{theirs}/charges", key=shop)).status_code == 404


async def test_sums_can_be_limited_to_a_time_range(open_api: OpenApi) -> None:
    async with open_api(application=App("films", pipelines=[paid])) as api:
        await make_run(api)
        now = (await api.sandbox.clock.now()).isoformat()
        assert (await get(api, "/api/v1/charges", params={"since": "2031-01-01T00:00:00Z"}))["totals"] == []
        assert (await get(api, "/api/v1/charges", params={"until": now}))["totals"][0]["charges"] < 3
