"""Retention over HTTP: rules, previews, holds and erasing, for administrators of all tenants only."""

from __future__ import annotations

from datetime import timedelta
from uuid import UUID

from tests.server.api import Api
from tests.server.conftest import OpenApi

DAY = timedelta(days=1)


async def start_and_cancel(api: Api) -> str:
    run = (await api.client.start("film", {})).id
    await api.client.runs.cancel(run)
    return str(run)


async def test_a_rule_is_set_previewed_applied_and_removed(open_api: OpenApi) -> None:
    async with open_api(scopes=["admin"]) as api:
        run = await start_and_cancel(api)
        body = {"keep": "P7D", "pipeline": "film"}
        assert (await api.call("PUT", "/api/v1/retention/rules", json=body)).status_code == 204
        first, *_ = (await api.get("/api/v1/retention/rules")).json()["rules"]
        assert (first["pipeline"], first["tenant"], first["final_class"], first["keep"]) == (
            "film",
            None,
            "ended",
            "P7D",
        )
        await api.sandbox.clock.advance(8 * DAY)
        preview = (await api.get("/api/v1/retention/preview")).json()
        assert (preview["runs"], preview["groups"][0]["pipeline"]) == (1, "film")
        assert (await api.post("/api/v1/retention/run")).json() == {"runs": 1}
        assert (await api.get(f"/api/v1/runs/{run}")).status_code == 404
        details = (await api.get("/api/v1/retention")).json()
        assert (details["totals"]["removed_runs"], details["removals"][0]["runs"]) == (1, 1)
        assert {table["table"] for table in details["tables"]} >= {"runs", "jobs", "events"}
        removed = await api.call("DELETE", "/api/v1/retention/rules?pipeline=film")
        assert removed.status_code == 204
        assert (await api.call("DELETE", "/api/v1/retention/rules?pipeline=film")).status_code == 404


async def test_a_start_with_the_key_of_a_removed_run_is_gone(open_api: OpenApi) -> None:
    async with open_api(scopes=["admin"]) as api:
        headers = {"Idempotency-Key": "once"}
        started = await api.post("/api/v1/runs", json={"pipeline": "film"}, headers=headers)
        await api.client.runs.cancel(UUID(started.json()["id"]))
        assert (await api.post(f"/api/v1/runs/{started.json()['id']}/erase")).json() == {"runs": 1, "files": 0}
        again = await api.post("/api/v1/runs", json={"pipeline": "film"}, headers=headers)
        assert (again.status_code, again.json()["code"]) == (410, "RUN_REMOVED")
        assert started.json()["id"] not in again.text


async def test_a_held_run_is_not_erased(open_api: OpenApi) -> None:
    async with open_api(scopes=["admin"]) as api:
        run = await start_and_cancel(api)
        assert (await api.call("PUT", f"/api/v1/runs/{run}/hold", json={"reason": "a dispute"})).status_code == 204
        (hold,) = (await api.get("/api/v1/retention/holds")).json()["holds"]
        assert (hold["run"], hold["reason"], hold["held_by"]) == (run, "a dispute", "key test")
        refused = await api.post(f"/api/v1/runs/{run}/erase")
        assert (refused.status_code, refused.json()["code"]) == (409, "RUN_HELD")
        assert (await api.call("DELETE", f"/api/v1/runs/{run}/hold")).status_code == 204
        assert (await api.post(f"/api/v1/runs/{run}/erase")).json() == {"runs": 1, "files": 0}


async def test_a_tenant_is_erased_once_its_runs_have_ended(open_api: OpenApi) -> None:
    async with open_api(scopes=["admin"]) as api:
        run = (await api.client.start("film", {}, tenant="shop")).id
        refused = await api.post("/api/v1/tenants/shop/erase")
        assert (refused.status_code, refused.json()["code"]) == (409, "RUN_BUSY")
        await api.client.runs.cancel(run)
        assert (await api.post("/api/v1/tenants/shop/erase")).json() == {"runs": 1, "files": 0}
        assert (await api.post("/api/v1/tenants/nobody/erase")).status_code == 404
