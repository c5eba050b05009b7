"""Acts over HTTP: resume, rerun, edit, skip."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from retoma import App, Pipeline, Retry, hours, minutes
from retoma.client.validation import digest_values
from retoma.engine import watchdog
from retoma.store import workers
from tests.engine.builders import HEARTBEAT_TIMEOUT
from tests.server.api import Api
from tests.server.conftest import OpenApi


async def start_failed_run(api: Api) -> str:
    """One whose items have all failed."""
    run = await api.start("bad")
    await api.sandbox.work()
    return run


async def test_failed_jobs_are_rerun(api: Api) -> None:
    run = await start_failed_run(api)
    made = await api.post(f"/api/v1/runs/{run}/rerun", json={"step": "image", "items": ["bad 0"]})
    assert (made.status_code, made.json()) == (200, {"id": run, "revision": 2, "jobs": 1})
    assert (await api.get(f"/api/v1/runs/{run}")).json()["state"] == "running"


@pytest.mark.parametrize(
    ("act", "body", "other"),
    [
        ("rerun", {"steps": ["cut"]}, {"steps": ["lines"]}),
        ("rerun", {}, {"step": "image"}),
        ("edit", {"step": "image", "item": "bad 0", "value": "mine"}, {"step": "image", "item": "bad 0", "value": "x"}),
        ("skip", {"step": "image", "items": ["bad 0"]}, {"step": "image", "items": ["bad 1"]}),
        ("fork", {}, {"input": {"topic": "sun"}}),
    ],
)
async def test_an_action_sent_again_with_its_key_is_done_once(
    api: Api, act: str, body: dict[str, Any], other: dict[str, Any]
) -> None:
    path, headers = f"/api/v1/runs/{await start_failed_run(api)}/{act}", {"Idempotency-Key": "order-812"}
    first, again = [await api.post(path, json=body, headers=headers) for _ in range(2)]
    repeated = {"created": False} if act == "fork" else {}
    assert (again.status_code, again.json()) == (200, first.json() | repeated)
    refused = await api.post(path, json=other, headers=headers)
    assert (refused.status_code, refused.json()["code"]) == (422, "IDEMPOTENCY_KEY_REUSED")


async def test_a_repeated_resume_gets_its_first_answer_while_a_worker_is_running(api: Api) -> None:
    run = await api.start()
    path, headers = f"/api/v1/runs/{run}/resume", {"Idempotency-Key": "order-812"}
    first = await api.post(path, headers=headers)
    assert "no running worker" in first.json()["note"]
    async with api.sandbox.manual_worker():
        assert (await api.post(path)).json()["note"] is None
        assert (await api.post(path, headers=headers)).json() == first.json()
    refused = await api.post(f"/api/v1/runs/{run}/cancel", headers=headers)
    assert (refused.status_code, refused.json()["code"]) == (422, "IDEMPOTENCY_KEY_REUSED")


@pytest.mark.parametrize("prefix", ["", "answer "])
async def test_a_key_equal_to_the_digest_of_another_identifies_nothing_else(api: Api, prefix: str) -> None:
    run, key = await start_failed_run(api), digest_values(("resume", "order-812")).hex()
    rerun = await api.post(f"/api/v1/runs/{run}/rerun", json={}, headers={"Idempotency-Key": f"{prefix}{key}"})
    assert rerun.status_code == 200
    resumed = await api.post(f"/api/v1/runs/{run}/resume", headers={"Idempotency-Key": "order-812"})
    assert (resumed.status_code, resumed.json()["state"]) == (200, "running")


async def test_a_repeated_cancel_gets_its_first_answer_after_the_run_has_ended(api: Api) -> None:
    run = await api.start()
    path, headers = f"/api/v1/runs/{run}/cancel", {"Idempotency-Key": "order-812"}
    async with api.sandbox.manual_worker() as worker:
        claims = await worker.claim(1)
        first = await api.post(path, headers=headers)
        assert first.json() == {"id": run, "state": "cancelling"}
        await worker.record_outcomes(await worker.attempt(claims))
    assert (await api.get(f"/api/v1/runs/{run}")).json()["state"] == "cancelled"
    assert (await api.post(path, headers=headers)).json() == first.json()


async def test_the_answer_to_a_resume_is_not_shown_to_another_tenant(open_api: OpenApi) -> None:
    headers = {"Idempotency-Key": "order-812"}
    async with open_api() as api:
        run = (await api.client.start("film", {"topic": "moon"}, tenant="acme")).id
        assert (await api.post(f"/api/v1/runs/{run}/resume", headers=headers)).status_code == 200
        stranger = await api.make_key("runs:write", tenant="globex")
        assert (await api.post(f"/api/v1/runs/{run}/resume", headers=headers, key=stranger)).status_code == 404


async def test_a_running_run_is_a_conflict(api: Api) -> None:
    run = await api.start()
    for act, body in (("rerun", {}), ("edit", {"step": "cut", "value": "x"}), ("skip", {"step": "cut", "items": [""]})):
        answer = await api.post(f"/api/v1/runs/{run}/{act}", json=body)
        assert (answer.status_code, answer.json()["code"]) == (409, "RUN_BUSY")


async def test_a_result_is_edited_and_an_item_skipped(api: Api) -> None:
    run = await start_failed_run(api)
    assert (await api.post(f"/api/v1/runs/{run}/skip", json={"step": "image", "items": ["bad 1"]})).status_code == 200
    await api.sandbox.work()
    body = {"step": "image", "item": "bad 0", "value": "by hand"}
    assert (await api.post(f"/api/v1/runs/{run}/edit", json=body)).json()["revision"] == 3
    await api.sandbox.work()
    assert (await api.get(f"/api/v1/runs/{run}/results")).json()["cut"] == "by hand"
    assert (await api.get(f"/api/v1/runs/{run}")).json()["state"] == "completed"


async def test_a_stuck_run_is_listed_and_resumed(api: Api) -> None:
    run = await api.start()
    await api.sandbox.clock.advance(minutes(5))
    await watchdog.check_due_runs(api.sandbox.database, HEARTBEAT_TIMEOUT)
    (stuck,) = (await api.get("/api/v1/stuck")).json()["stuck"]
    assert (stuck["run"], stuck["cause"]) == (run, "no_worker")
    resumed = await api.post(f"/api/v1/runs/{run}/resume")
    assert (resumed.status_code, resumed.json()["state"]) == (200, "running")
    assert "no running worker serves queue 'default'" in resumed.json()["note"]
    assert (await api.post(f"/api/v1/runs/{run}/resume")).json() == resumed.json()
    assert (await api.get("/api/v1/stuck")).json()["stuck"] == []


async def test_a_tenant_s_key_sees_no_stack_of_a_stuck_run(open_api: OpenApi) -> None:
    shaky = Pipeline("shaky", retry=Retry(5, delays=[3600]), stuck_after=minutes(1))

    @shaky.step(timeout=minutes(1))
    def fails() -> None:
        raise ValueError("no paint left")

    async with open_api(application=App("shaky", pipelines=[shaky])) as api:
        own = await api.make_key("runs:read", tenant="ours")
        run = (await api.client.start("shaky", tenant="ours")).id
        async with api.sandbox.manual_worker() as worker:
            await worker.record_outcomes(await worker.attempt(await worker.claim()))
            await api.sandbox.clock.advance(hours(2))
            await workers.release_due_jobs(api.sandbox.database, limit=10)
            await worker.claim()
            await api.sandbox.clock.advance(hours(9))
            await watchdog.check_due_runs(api.sandbox.database, HEARTBEAT_TIMEOUT)
            shown = [(await api.get("/api/v1/stuck", key=key)).json()["stuck"] for key in (own, api.key)]
    assert [(one["run"], one["data"]["message"], "stack" in one["data"]) for (one,) in shown] == [
        (str(run), "no paint left", False),
        (str(run), "no paint left", True),
    ]
    assert str(Path(__file__).parent) not in str(shown)


async def test_events_record_their_actor(api: Api) -> None:
    run = await start_failed_run(api)
    await api.post(f"/api/v1/runs/{run}/rerun", json={})
    events = (await api.get(f"/api/v1/runs/{run}/events")).json()["events"]
    (act,) = [event for event in events if event["kind"] == "action"]
    assert act["data"]["by"].startswith("key ")
