"""Pools, callbacks and deliveries over HTTP."""

from __future__ import annotations

from datetime import timedelta
from typing import Any
from urllib.parse import urlsplit
from uuid import uuid4

import pytest

from retoma import App, Context, Pipeline, Pool, Retry, minutes
from retoma.engine.metrics import read_metrics
from retoma.states import DeliveryState
from tests.receiver import receiver, respond_with
from tests.server.api import Api
from tests.server.conftest import OpenApi


class Host:
    def __init__(self) -> None:
        self.callback = ""

    async def submit(self, callback: str | None) -> str:
        assert callback is not None
        self.callback = urlsplit(callback).path
        return "job-1"


def rendering(host: Host) -> App:
    pipeline = Pipeline("render")

    @pipeline.step(pool=Pool("gpu", capacity=3), timeout=minutes(10))
    async def clip(*, host: Host, ctx: Context) -> Any:
        return await ctx.external(lambda: host.submit(ctx.callback_url))

    return App("films", pipelines=[pipeline], resources={"host": host})


async def start_run(api: Api) -> str:
    run = str((await api.post("/api/v1/runs", json={"pipeline": "render"})).json()["id"])
    await api.sandbox.work(advance_clock=False)
    return run


async def test_a_callback_finishes_the_waiting_job_and_may_arrive_twice(open_api: OpenApi) -> None:
    host = Host()
    async with open_api(application=rendering(host)) as api:
        run = await start_run(api)
        assert (await api.post(host.callback, key=None, json={"video": "a.mp4"})).status_code == 200
        assert (await api.post(host.callback, key=None, json={"video": "b.mp4"})).status_code == 200
        await api.sandbox.work()
        assert (await api.get(f"/api/v1/runs/{run}/results")).json() == {"clip": {"video": "a.mp4"}}


async def test_a_callback_that_arrives_too_late_is_gone(open_api: OpenApi) -> None:
    host = Host()
    async with open_api(application=rendering(host)) as api:
        await start_run(api)
        await api.sandbox.clock.advance(timedelta(days=31))
        answer = await api.post(host.callback, key=None, json={})
        assert (answer.status_code, answer.json()["code"]) == (410, "GONE")


async def test_a_callbacks_body_may_be_anything(open_api: OpenApi) -> None:
    host = Host()
    async with open_api(application=rendering(host)) as api:
        run = await start_run(api)
        assert (await api.post(host.callback, key=None, content=b"not { json \xff")).status_code == 200
        await api.sandbox.work()
        assert (await api.get(f"/api/v1/runs/{run}/results")).json() == {"clip": "not { json �"}


@pytest.mark.parametrize("body", [b'"%s"' % (b"x" * 999_999), b"\n" * 500_000])
async def test_a_callback_body_that_could_not_be_a_result_is_rejected(body: bytes, open_api: OpenApi) -> None:
    host = Host()
    async with open_api(application=rendering(host)) as api:
        run = await start_run(api)
        refused = await api.post(host.callback, key=None, content=body)
        assert (refused.status_code, refused.json()["code"]) == (413, "BODY_TOO_LARGE")
        assert (await api.post(host.callback, key=None, json="x" * 999_998)).status_code == 200
        await api.sandbox.work()
        assert (await api.get(f"/api/v1/runs/{run}")).json()["state"] == "completed"


@pytest.mark.usefixtures("frozen_rate_limit")
async def test_guessing_callback_tokens_is_rate_limited(api: Api) -> None:
    answers = [await api.post(f"/api/v1/callbacks/{uuid4().hex}", key=None) for _ in range(31)]
    assert [answer.status_code for answer in answers] == [404] * 30 + [429]


@pytest.mark.usefixtures("frozen_rate_limit")
async def test_a_valid_callback_is_accepted_after_any_number_of_wrong_ones(open_api: OpenApi) -> None:
    host = Host()
    async with open_api(application=rendering(host)) as api:
        run = await start_run(api)
        wrong = [await api.post(f"/api/v1/callbacks/{uuid4().hex}", key=None) for _ in range(40)]
        assert wrong[-1].status_code == 429
        assert (await api.post(host.callback, key=None, json="x" * 100_000)).status_code == 200
        await api.sandbox.work()
        assert (await api.get(f"/api/v1/runs/{run}")).json()["state"] == "completed"


async def test_a_pool_is_shown_and_changed(open_api: OpenApi) -> None:
    async with open_api(application=rendering(Host())) as api:
        await start_run(api)
        (pool,) = (await api.get("/api/v1/pools")).json()["pools"]
        assert (pool["name"], pool["capacity"], pool["used"]) == ("gpu", 3, 1)
        changed = await api.call("PUT", "/api/v1/pools/gpu", json={"capacity": 5})
        assert (changed.status_code, changed.json()["capacity"]) == (200, 5)
        assert (await api.get("/api/v1/pools/gpu")).json() == changed.json()
        assert (await api.get("/api/v1/pools/cpu")).status_code == 404
        assert (await api.call("PUT", "/api/v1/pools/cpu", json={"capacity": 5})).status_code == 404
        assert (await api.call("PUT", "/api/v1/pools/gpu", json={"capacity": -1})).status_code == 422


async def test_the_rate_of_a_pool_is_changed_alone_and_its_pause_ended(open_api: OpenApi) -> None:
    async with open_api(application=rendering(Host())) as api:
        await start_run(api)
        async with api.client.database.connection() as connection:
            await connection.execute("update retoma.pools set paused_until = retoma.now() + interval '1 hour'")
        changed = (await api.call("PUT", "/api/v1/pools/gpu", json={"rate": 2.5, "burst": 4})).json()
        assert (changed["rate"], changed["burst"], changed["capacity"]) == (2.5, 4, 3)
        assert changed["paused_until"] is not None
        resumed = (await api.call("PUT", "/api/v1/pools/gpu", json={"resume": True, "rate": 0})).json()
        assert (resumed["paused_until"], resumed["rate"]) == (None, None)
        assert (await api.call("PUT", "/api/v1/pools/gpu", json={"burst": 0})).status_code == 422


async def test_a_run_reports_that_it_waits_for_its_pool(open_api: OpenApi) -> None:
    async with open_api(application=rendering(Host())) as api:
        await start_run(api)
        await api.call("PUT", "/api/v1/pools/gpu", json={"capacity": 1})
        async with api.sandbox.manual_worker():
            run = (await api.post("/api/v1/runs", json={"pipeline": "render"})).json()["id"]
            (wait,) = (await api.get(f"/api/v1/runs/{run}")).json()["waits"]
        assert wait["reason"] == "pool"
        assert "gpu" in wait["explanation"]


async def test_a_dead_delivery_shows_its_attempts_and_is_redelivered(api: Api) -> None:
    async with receiver(respond_with(500)) as listener:
        webhook = {"url": listener.url, "events": ["run.started"], "retries": 0}
        run = (await api.post("/api/v1/runs", json={"pipeline": "film", "webhook": webhook})).json()["id"]
        await api.sandbox.send_webhooks()
        (dead,) = (await api.get("/api/v1/deliveries", params={"state": "dead", "run": run})).json()["deliveries"]
        shown = (await api.get(f"/api/v1/deliveries/{dead['id']}")).json()
        (attempt,) = shown["attempts"]
        assert (shown["url"], attempt["status"], shown["body"] is None) == (listener.url, 500, False)
        again = await api.post(f"/api/v1/deliveries/{dead['id']}/redeliver")
        assert (again.status_code, again.json()["state"]) == (202, DeliveryState.DUE)
        await api.sandbox.send_webhooks()
        refused = await api.post(f"/api/v1/deliveries/{dead['id']}/redeliver")
        assert (refused.status_code, refused.json()["code"]) == (409, "CONFLICT")
    assert len({got.headers["webhook-id"] for got in listener.requests}) == 1
    assert len(listener.requests) == 2


async def test_all_dead_deliveries_of_a_tenant_are_redriven_with_its_key(api: Api) -> None:
    async with receiver(*[respond_with(500)] * 4) as listener:
        webhook = {"url": listener.url, "events": ["run.started"], "retries": 0}
        for tenant in ("blog", "blog", "shop"):
            await api.post("/api/v1/runs", json={"pipeline": "film", "tenant": tenant, "webhook": webhook})
        await api.sandbox.send_webhooks()
        key = await api.make_key("deliveries:write", tenant="blog")
        answer = await api.post("/api/v1/deliveries/redeliver", key=key, json={"url": listener.url})
        assert (answer.status_code, answer.json()) == (202, {"deliveries": 2})


async def test_a_disabled_endpoint_is_seen_and_enabled(api: Api) -> None:
    async with receiver(respond_with(410)) as listener:
        webhook = {"url": listener.url, "events": ["run.started"]}
        await api.post("/api/v1/runs", json={"pipeline": "film", "webhook": webhook})
        await api.sandbox.send_webhooks()
        (delivery,) = (await api.get("/api/v1/deliveries")).json()["deliveries"]
        refused = await api.post(f"/api/v1/deliveries/{delivery['id']}/redeliver")
        assert f"POST /api/v1/endpoints/{delivery['endpoint']}/enable" in refused.json()["detail"]
        (found,) = (await api.get("/api/v1/endpoints")).json()["endpoints"]
        assert (found["disabled_because"], found["dead"], found["url"]) == (
            "it responded with 410 Gone",
            1,
            listener.url,
        )
        enabled = (await api.post(f"/api/v1/endpoints/{found['id']}/enable")).json()
        assert enabled == found | {"disabled_at": None, "disabled_because": None, "failures": 0, "failing_since": None}
        assert (await api.post(f"/api/v1/deliveries/{delivery['id']}/redeliver")).status_code == 202
        assert (await api.post(f"/api/v1/endpoints/{found['id'] + 1}/enable")).status_code == 404


async def test_endpoints_are_listed_newest_first_by_pages(api: Api) -> None:
    for place in ("a", "b", "c"):
        webhook = {"url": f"https://hooks.example/{place}"}
        await api.post("/api/v1/runs", json={"pipeline": "film", "webhook": webhook})
    first = (await api.get("/api/v1/endpoints", params={"limit": 2})).json()
    rest = (await api.get("/api/v1/endpoints", params={"limit": 2, "before": first["next"]})).json()
    assert [one["url"][-1] for page in (first, rest) for one in page["endpoints"]] == ["c", "b", "a"]
    assert rest["next"] is None


async def test_a_webhook_that_must_not_be_called_is_refused_at_the_start(api: Api) -> None:
    for url in ("http://169.254.169.254/latest", "ftp://hooks.example/x", "https://user:pass@hooks.example/x"):
        answer = await api.post("/api/v1/runs", json={"pipeline": "film", "webhook": {"url": url}})
        assert (answer.status_code, answer.json()["code"]) == (422, "UNSAFE_URL"), answer.text
    assert await api.client.runs.list() == []


def cancel_order(order: str) -> None: ...


def losing() -> App:
    """Its only step makes a call whose answer is lost, and which nobody can find."""
    pipeline = Pipeline("losing", retry=Retry(0))

    @pipeline.step
    async def order(*, ctx: Context) -> Any:
        await ctx.once("order", lose_answer, cancel=cancel_order)

    def lose_answer() -> None:
        raise ConnectionError("the answer was lost")

    return App("shop", pipelines=[pipeline])


async def test_an_orphan_is_listed_counted_and_resolved_once(open_api: OpenApi) -> None:
    async with open_api(application=losing()) as api:
        run = str((await api.post("/api/v1/runs", json={"pipeline": "losing"})).json()["id"])
        await api.sandbox.work()
        (orphan,) = (await api.get(f"/api/v1/runs/{run}")).json()["orphans"]
        assert (orphan["step"], orphan["effect"], orphan["value"], orphan["resolution"]) == (
            "order",
            "order",
            None,
            None,
        )
        assert 'retoma_orphaned_effects{pipeline="losing"} 1.0' in (await api.get("/metrics")).text
        path, body = f"/api/v1/runs/{run}/orphans/resolve", {"step": "order", "effect": "order"}
        first, again = [await api.post(path, json=body | {"resolution": "nothing_found"}) for _ in range(2)]
        assert (first.status_code, first.json()["resolution"]) == (200, "nothing_found")
        assert again.json() == first.json()
        refused = await api.post(path, json=body | {"resolution": "cancelled_by_hand"})
        assert (refused.status_code, first.json()["resolved_by"] in refused.json()["detail"]) == (409, True)
        assert (await api.post(path, json=body | {"resolution": "lost"})).status_code == 422
        assert (await api.post(path, json={**body, "effect": "x", "resolution": "nothing_found"})).status_code == 404
        assert (await api.get(f"/api/v1/runs/{run}")).json()["orphans"] == [first.json()]
        assert (await read_metrics(api.sandbox.database)).orphans == {}


async def test_open_orphans_of_all_runs_are_listed_by_pages(open_api: OpenApi) -> None:
    async with open_api(application=losing()) as api:
        runs = [(await api.client.start("losing", tenant=f"shop {number}")).id for number in range(3)]
        await api.sandbox.work()
        first = (await api.get("/api/v1/orphans", params={"limit": 2})).json()
        rest = (await api.get("/api/v1/orphans", params={"limit": 2, "after": first["next"]})).json()
        assert sorted(one["run"] for page in (first, rest) for one in page["orphans"]) == sorted(map(str, runs))
        assert (len(first["orphans"]), rest["next"]) == (2, None)
        await api.client.runs.resolve_orphan(runs[0], "order", "order", "nothing_found")
        left = (await api.get("/api/v1/orphans")).json()["orphans"]
        assert sorted(one["tenant"] for one in left) == ["shop 1", "shop 2"]
        ours = {"tenant": "shop 2"}
        assert [one["run"] for one in (await api.get("/api/v1/orphans", params=ours)).json()["orphans"]] == [
            str(runs[2])
        ]
        key = (await api.client.api_keys.create("shop", tenant="shop 1", scopes=["runs:read"])).secret
        (own,) = (await api.get("/api/v1/orphans", key=key)).json()["orphans"]
        assert (own["run"], own["pipeline"], own["tenant"]) == (str(runs[1]), "losing", "shop 1")
        assert (await api.get("/api/v1/orphans", key=key, params=ours)).json() == {"orphans": [], "next": None}
        for after in ("x", "e30="):
            assert (await api.get("/api/v1/orphans", params={"after": after})).status_code == 404


async def test_an_orphan_of_another_tenant_does_not_exist(open_api: OpenApi) -> None:
    async with open_api(application=losing()) as api:
        run = str((await api.post("/api/v1/runs", json={"pipeline": "losing"})).json()["id"])
        await api.sandbox.work()
        key = (await api.client.api_keys.create("stranger", tenant="other", scopes=["runs:read", "runs:write"])).secret
        body = {"step": "order", "effect": "order", "resolution": "nothing_found"}
        refused = await api.post(f"/api/v1/runs/{run}/orphans/resolve", key=key, json=body)
        assert refused.status_code == 404
