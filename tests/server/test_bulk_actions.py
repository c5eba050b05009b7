"""Bulk actions, retries and stacks over HTTP: who may do what to whose runs."""

from __future__ import annotations

from typing import Any

from retoma import App, Pipeline, Retry
from retoma.engine.bulk_actions import advance_open_actions
from retoma.states import RunState
from tests.engine.builders import run_next
from tests.server.api import Api
from tests.server.conftest import OpenApi

shaky = Pipeline("shaky", retry=Retry(3, delays=[600]))


@shaky.step
async def wobble() -> None:
    raise ValueError("not today")


SHAKY = App("shakes", pipelines=[shaky])


async def post(api: Api, path: str, key: str | None = "", **body: Any) -> Any:
    return await api.post(f"/api/v1/{path}", json=body, key=key)


async def test_a_bulk_action_is_previewed_started_and_followed(api: Api) -> None:
    runs = [await api.start() for _ in range(3)]
    preview = (await post(api, "bulk-actions/preview", kind="cancel_runs", pipeline="film")).json()
    assert (preview["count"], [each["run"] for each in preview["sample"]]) == (3, runs)
    started = await post(api, "bulk-actions", kind="cancel_runs", pipeline="film", expected=3)
    assert (started.status_code, started.json()["total"]) == (202, 3)
    await advance_open_actions(api.sandbox.database)
    found = (await api.get(f"/api/v1/bulk-actions/{started.json()['id']}")).json()
    assert (found["done"], found["skipped"], found["requested_by"]) == (3, 0, "key test")
    assert (await api.get("/api/v1/bulk-actions")).json()["bulk_actions"] == [found]
    assert {run.state for run in await api.client.runs.list()} == {RunState.CANCELLED}


async def test_the_same_idempotency_key_is_the_same_bulk_action(api: Api) -> None:
    await api.start()
    body, headers = {"kind": "cancel_runs"}, {"Idempotency-Key": "once"}
    first, second = [await api.post("/api/v1/bulk-actions", json=body, headers=headers) for _ in "12"]
    assert first.json() == second.json()
    other = await api.post("/api/v1/bulk-actions", json={"kind": "rerun_failed"}, headers=headers)
    assert (other.status_code, other.json()["code"]) == (422, "IDEMPOTENCY_KEY_REUSED")
    assert (await post(api, "bulk-actions", kind="cancel_runs", expected=0)).status_code == 409
    assert (await post(api, "bulk-actions", kind="cancel_runs", queue="default")).status_code == 422


async def test_a_key_of_one_tenant_acts_on_its_own_runs_only(api: Api) -> None:
    shop = await api.make_key("runs:read", "runs:write", tenant="shop")
    mine = (await api.client.start("film", {}, tenant="shop")).id
    other = (await api.client.start("film", {}, tenant="other")).id
    action = (await post(api, "bulk-actions", shop, kind="cancel_runs")).json()
    assert (action["total"], action["tenant"]) == (1, "shop")
    assert (await post(api, "bulk-actions/preview", shop, kind="cancel_runs", tenant="other")).json()["count"] == 0
    await advance_open_actions(api.sandbox.database)
    assert (await api.client.runs.get(mine)).state is RunState.CANCELLED
    assert (await api.client.runs.get(other)).state is RunState.RUNNING
    foreign = (await post(api, "bulk-actions", kind="cancel_runs")).json()["id"]
    assert (await api.get(f"/api/v1/bulk-actions/{foreign}", key=shop)).status_code == 404
    assert (await post(api, f"bulk-actions/{foreign}/abort", shop)).status_code == 404
    listed = (await api.get("/api/v1/bulk-actions", key=shop)).json()["bulk_actions"]
    assert [each["id"] for each in listed] == [action["id"]]


async def test_resending_needs_the_scope_of_deliveries(api: Api) -> None:
    writer = await api.make_key("runs:write")
    for path in ("bulk-actions", "bulk-actions/preview"):
        refused = await post(api, path, writer, kind="redeliver")
        assert (refused.status_code, refused.json()["code"]) == (403, "SCOPE_MISSING")
    both = await api.make_key("runs:write", "deliveries:write")
    assert (await post(api, "bulk-actions", both, kind="redeliver")).status_code == 202


async def test_a_job_is_retried_now_by_the_key_of_its_tenant_only(open_api: OpenApi) -> None:
    async with open_api(application=SHAKY) as api:
        run = (await api.client.start("shaky", tenant="shop")).id
        async with api.sandbox.manual_worker() as worker:
            await run_next(worker)
        shop, other = [await api.make_key("runs:read", "runs:write", tenant=tenant) for tenant in ("shop", "other")]
        assert (await api.get("/api/v1/retries", key=other)).json()["retries"] == []
        assert (await post(api, f"runs/{run}/retry-now", other, step="wobble")).status_code == 404
        (found,) = (await api.get("/api/v1/retries?step=wobble", key=shop)).json()["retries"]
        assert (found["run"], found["step"]) == (str(run), "wobble")
        assert (await post(api, f"runs/{run}/retry-now", shop, step="wobble")).status_code == 204
        assert (await post(api, f"runs/{run}/retry-now", shop, step="wobble")).status_code == 409


async def test_only_administrators_ask_for_stacks(api: Api) -> None:
    async with api.sandbox.manual_worker() as worker:
        path = f"workers/{worker.worker}/stacks"
        writer = await api.make_key("pools:read", "pools:write", "runs:read")
        assert (await post(api, path, writer)).status_code == 403
        assert (await api.get(f"/api/v1/{path}", key=writer)).status_code == 403
        assert (await api.get(f"/api/v1/{path}")).status_code == 404
        asked = (await post(api, path)).json()
        assert (asked["requested_by"], asked["answered_at"], asked["jobs"]) == ("test", None, [])
        assert (await api.get(f"/api/v1/{path}")).json() == asked
