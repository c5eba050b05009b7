"""Schedules over HTTP."""

from __future__ import annotations

from datetime import timedelta
from typing import Any

from retoma.records import Scope
from tests.server.api import Api
from tests.server.conftest import OpenApi

HOURLY = {"name": "hourly", "pipeline": "film", "every_seconds": 3600, "inputs": {"topic": "{{ due_date }}"}}


async def create(api: Api, **body: Any) -> Any:
    answer = await api.post("/api/v1/schedules", json=HOURLY | body)
    assert answer.status_code == 201, answer.text
    return answer.json()


async def test_a_schedule_is_created_changed_paused_resumed_and_deleted(open_api: OpenApi) -> None:
    async with open_api(scopes=["admin"]) as api:
        created = await create(api, tenant="blog", title="Every hour")
        path = f"/api/v1/schedules/{created['id']}"
        assert (created["declared_by"], created["changed_by"]) == ("api", "key test")
        shown = (await api.get(path)).json()
        assert (shown["schedule"], len(shown["next"])) == (created, 5)
        changed = (await api.call("PATCH", path, json={"cron": "0 3 * * *", "time_zone": "Europe/Lisbon"})).json()
        assert (changed["cron"], changed["every_seconds"], changed["title"]) == ("0 3 * * *", None, "Every hour")
        assert (await api.call("PATCH", path, json={"title": "x", "revision": 1})).status_code == 409
        assert (await api.post(f"{path}/pause", json=None)).json()["paused_by"] == "key test"
        assert (await api.post(f"{path}/resume", json=None)).json()["paused_at"] is None
        assert [each["id"] for each in (await api.get("/api/v1/schedules")).json()["schedules"]] == [created["id"]]
        assert (await api.call("DELETE", path)).status_code == 204
        assert (await api.get(path)).status_code == 404


async def test_a_trigger_with_the_same_key_returns_the_same_run(open_api: OpenApi) -> None:
    async with open_api(scopes=["admin"]) as api:
        path = f"/api/v1/schedules/{(await create(api))['id']}"
        headers = {"Idempotency-Key": "once"}
        first, second = [await api.post(f"{path}/trigger", json=None, headers=headers) for _ in "12"]
        assert (first.status_code, second.status_code) == (202, 200)
        assert first.json()["id"] == second.json()["id"]
        assert first.headers["location"] == f"/api/v1/runs/{first.json()['id']}"
        page = (await api.get(f"{path}/occurrences")).json()
        assert [each["triggered_by"] for each in page["occurrences"]] == ["key test"]


async def test_the_history_is_read_page_by_page(open_api: OpenApi) -> None:
    async with open_api(scopes=["admin"]) as api:
        path = f"/api/v1/schedules/{(await create(api))['id']}/occurrences"
        for _ in range(3):
            await api.sandbox.clock.advance(timedelta(hours=1))
            await api.client.schedules.start_due()
        first = (await api.get(path, params={"limit": 2})).json()
        second = (await api.get(path, params={"limit": 2, "before": first["next"]})).json()
        due = [each["due_at"] for each in (*first["occurrences"], *second["occurrences"])]
        assert (len(due), due, second["next"]) == (3, sorted(due, reverse=True), None)


async def test_a_preview_lists_the_next_times(api: Api) -> None:
    query = {"cron": "0 3 * * *", "time_zone": "America/Sao_Paulo", "limit": 2}
    found = await api.get("/api/v1/schedule-preview", params=query)
    assert found.json()["times"] == ["2030-01-02T06:00:00Z", "2030-01-03T06:00:00Z"]
    wrong = await api.get("/api/v1/schedule-preview", params={"cron": "0 99 * * *"})
    assert (wrong.status_code, wrong.json()["times"]) == (200, [])
    assert wrong.json()["error"].startswith("the cron rule '0 99 * * *' is not valid")


async def test_a_wrong_schedule_is_refused_with_a_problem(open_api: OpenApi) -> None:
    async with open_api(scopes=["admin"]) as api:
        for body, code in (
            ({"pipeline": "films"}, "NOT_FOUND"),
            ({"inputs": {"topic": "{{ due_dat }}"}}, "INVALID_INPUT"),
            ({"cron": "0 3 * * *"}, "INVALID_INPUT"),
            ({"surprise": 1}, "INVALID_REQUEST"),
        ):
            answer = await api.post("/api/v1/schedules", json=HOURLY | body)
            assert answer.json()["code"] == code, answer.text
        await create(api)
        assert (await api.post("/api/v1/schedules", json=HOURLY)).status_code == 409


async def test_an_operator_pauses_and_triggers_and_only_an_administrator_creates(open_api: OpenApi) -> None:
    async with open_api(scopes=["admin"]) as api:
        path = f"/api/v1/schedules/{(await create(api, tenant='blog'))['id']}"
        operator = await api.make_key(Scope.RUNS_READ, Scope.RUNS_WRITE, tenant="blog")
        assert (await api.post(f"{path}/pause", json=None, key=operator)).status_code == 200
        assert (await api.post(f"{path}/trigger", json=None, key=operator)).status_code == 202
        assert (await api.post("/api/v1/schedules", json=HOURLY, key=operator)).json()["code"] == "SCOPE_MISSING"
        assert (await api.call("DELETE", path, key=operator)).status_code == 403
        administrator = await api.make_key(Scope.SCHEDULES_WRITE, tenant="shop")
        assert (await api.call("PATCH", path, json={"title": "x"}, key=administrator)).status_code == 404
        other = await api.post("/api/v1/schedules", json=HOURLY | {"tenant": "blog"}, key=administrator)
        assert other.json()["code"] == "OTHER_TENANT"


async def test_starts_and_their_lateness_are_metrics(open_api: OpenApi) -> None:
    async with open_api(scopes=["admin"]) as api:
        await create(api)
        await api.sandbox.clock.advance(timedelta(hours=2, seconds=30))
        assert "retoma_oldest_due_schedule_seconds 3630.0" in (await api.get("/metrics")).text
        await api.client.schedules.start_due()
        metrics = api.client._core.metrics_reader
        metrics.expire()
        text = (await api.get("/metrics")).text
        assert 'retoma_schedule_starts_total{outcome="missed",pipeline="film"} 1.0' in text
        assert 'retoma_schedule_starts_total{outcome="started",pipeline="film"} 1.0' in text
        assert 'retoma_schedule_late_seconds_total{pipeline="film"} 30.0' in text
