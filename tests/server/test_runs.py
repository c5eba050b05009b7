"""Runs over HTTP: start, show, cancel."""

from __future__ import annotations

import asyncio
from datetime import timedelta
from uuid import uuid4

import pytest
from pydantic import BaseModel

from retoma import App, Context, Pipeline, Pool
from retoma.records import ALL_TENANTS
from retoma.reviews import Rejection
from tests.conftest import RowsRead
from tests.engine.builders import run_next
from tests.server.api import Api
from tests.server.conftest import OpenApi


async def test_a_start_returns_the_url_of_the_run(api: Api) -> None:
    answer = await api.post("/api/v1/runs", json={"pipeline": "film", "input": {"topic": "rain"}, "tenant": "blog"})
    assert answer.status_code == 202
    shown = await api.get(answer.headers["location"])
    assert shown.json()["input"] == {"topic": "rain", "scenes": 2}
    assert (shown.json()["tenant"], shown.json()["state"]) == ("blog", "running")


async def test_the_same_key_returns_the_same_run_and_another_input_is_rejected(api: Api) -> None:
    body = {"pipeline": "film", "input": {"topic": "rain"}}
    headers = {"Idempotency-Key": "order-812"}
    first = await api.post("/api/v1/runs", json=body, headers=headers)
    again = await api.post("/api/v1/runs", json=body, headers=headers)
    other = await api.post("/api/v1/runs", json=body | {"input": {"topic": "sun"}}, headers=headers)
    assert (first.status_code, again.status_code, other.status_code) == (202, 200, 422)
    assert first.json() == {"id": again.json()["id"], "created": True}
    assert again.json()["created"] is False
    assert other.json()["code"] == "IDEMPOTENCY_KEY_REUSED"


async def test_two_hundred_equal_starts_at_once_are_one_run(api: Api) -> None:
    body = {"pipeline": "film"}
    answers = await asyncio.gather(
        *(api.post("/api/v1/runs", json=body, headers={"Idempotency-Key": "same"}) for _ in range(200))
    )
    assert len({answer.json()["id"] for answer in answers}) == 1
    assert sorted(answer.status_code for answer in answers) == [200] * 199 + [202]


async def test_a_run_may_be_scheduled(api: Api) -> None:
    at = await api.sandbox.clock.now() + timedelta(hours=1)
    started = await api.post("/api/v1/runs", json={"pipeline": "film", "run_at": at.isoformat()})
    shown = (await api.get(started.headers["location"])).json()
    assert shown["state"] == "pending"
    (wait,) = shown["waits"]
    assert wait["reason"] == "delayed"
    assert wait["explanation"] == "lines: delayed until 2030-01-01 13:00:00 UTC"


async def test_many_runs_start_in_one_call_in_their_order(api: Api) -> None:
    inputs = [{"topic": f"rain {number}"} for number in range(1_500)]
    answer = await api.post("/api/v1/runs/bulk", json={"pipeline": "film", "inputs": inputs})
    assert answer.status_code == 202
    runs = answer.json()["runs"]
    assert len(set(runs)) == 1_500
    assert (await api.get(f"/api/v1/runs/{runs[1_234]}")).json()["input"]["topic"] == "rain 1234"


async def test_many_runs_with_a_key_are_started_once(api: Api) -> None:
    headers = {"Idempotency-Key": "batch-7"}
    inputs = [{"topic": f"rain {number}"} for number in range(30)]
    body = {"pipeline": "film", "inputs": inputs}
    first = await api.post("/api/v1/runs/bulk", json=body, headers=headers)
    again = await api.post("/api/v1/runs/bulk", json=body, headers=headers)
    assert (first.status_code, again.status_code) == (202, 200)
    assert first.json() == again.json()
    for other in (inputs[:-1], [*inputs, {}], inputs[::-1]):
        answer = await api.post("/api/v1/runs/bulk", json=body | {"inputs": other}, headers=headers)
        assert (answer.status_code, answer.json()["code"]) == (422, "IDEMPOTENCY_KEY_REUSED")
    assert len(await api.client.runs.list(limit=100)) == 30


async def test_one_invalid_input_in_a_batch_starts_nothing(api: Api) -> None:
    answer = await api.post("/api/v1/runs/bulk", json={"pipeline": "film", "inputs": [{}, {"scenes": "many"}]})
    assert answer.status_code == 422
    assert (await api.get("/api/v1/runs")).json()["runs"] == []


async def test_pages_follow_one_another_without_gaps(api: Api) -> None:
    runs = [await api.start(str(number)) for number in range(5)]
    seen, before = [], None
    while True:
        page = (await api.get("/api/v1/runs", params={"limit": 2} | ({"before": before} if before else {}))).json()
        seen += [run["id"] for run in page["runs"]]
        before = page["next"]
        if before is None:
            break
    assert seen == runs[::-1]


async def test_a_list_of_runs_does_not_load_their_inputs(api: Api, rows_read: RowsRead) -> None:
    run = await api.start("a long story")
    page = (await api.get("/api/v1/runs")).json()
    assert "input" not in page["runs"][0]
    assert [each["id"] for each in page["runs"]] == [run]
    assert len(rows_read["list_runs"]) == 1
    assert "a long story" not in rows_read["list_runs"][0]
    (found,) = await api.client.runs.list()
    assert found.input["topic"] == "a long story"


async def test_runs_are_found_by_state_pipeline_and_tenant(api: Api) -> None:
    run, other = await api.start(), await api.start()
    await api.post(f"/api/v1/runs/{other}/cancel")
    await api.client.start("film", tenant="blog")
    for query, found in (
        ({"state": "cancelled"}, [other]),
        ({"state": ["cancelled", "running"], "tenant": "default"}, [other, run]),
        ({"pipeline": "book"}, []),
    ):
        page = (await api.get("/api/v1/runs", params=query)).json()
        assert [each["id"] for each in page["runs"]] == found


async def test_a_run_shows_its_progress_and_estimated_end(api: Api) -> None:
    started = await api.client.start("film", {"scenes": 4})
    async with api.sandbox.manual_worker() as worker:
        await run_next(worker, "lines")
        claims = await worker.claim(100)
        await api.sandbox.clock.advance(timedelta(seconds=60))
        await worker.record_outcomes(await worker.attempt(claims[:3]))
        shown = (await api.get(f"/api/v1/runs/{started.id}")).json()
        await worker.record_outcomes(await worker.attempt(claims[3:]))
    steps = {step["step"]: step for step in shown["steps"]}
    assert (steps["image"]["ended"], steps["image"]["total"]) == (3, 4)
    assert steps["image"]["jobs"] == {"succeeded": 3, "running": 1}
    assert shown["estimated_end_at"] == "2030-01-01T12:01:20Z"


async def test_a_run_reports_why_it_waits(api: Api) -> None:
    run = await api.start()
    (wait,) = (await api.get(f"/api/v1/runs/{run}")).json()["waits"]
    assert wait["reason"] == "no_worker"
    assert wait["explanation"].startswith("lines: no running worker serves queue 'default'")


async def test_the_stack_trace_of_an_error_is_shown_only_to_keys_of_all_tenants(api: Api) -> None:
    own = await api.make_key("runs:read", "runs:write", tenant="studio")
    run = await api.start("bad", key=own)
    await api.sandbox.work()
    for key, is_shown in ((own, False), (api.key, True)):
        for part in ("", "/events", "/items"):
            body = (await api.get(f"/api/v1/runs/{run}{part}", key=key)).text
            assert ("no paint left" in body, "Traceback" in body) == (True, is_shown)


async def test_only_the_displayed_errors_are_loaded(api: Api, rows_read: RowsRead) -> None:
    own = await api.make_key("runs:read", tenant="studio")
    run = (await api.client.start("film", {"topic": "bad", "scenes": 110}, tenant="studio")).id
    await api.sandbox.work()
    for key, stacks in ((own, 0), (api.key, 100)):
        rows_read.clear()
        shown = (await api.get(f"/api/v1/runs/{run}", key=key)).json()
        assert len(shown["errors"]) == len(rows_read["list_last_errors"]) == 100
        assert sum("Traceback" in row for row in rows_read["list_last_errors"]) == stacks
    assert len(await api.client.runs.get_errors(run)) == (await api.client.runs.get_error_counts(run)).failed == 110


async def test_a_finished_run_shows_results_errors_and_events(api: Api) -> None:
    run = await api.start("bad")
    await api.sandbox.work()
    shown = (await api.get(f"/api/v1/runs/{run}")).json()
    assert shown["state"] == "completed_with_errors"
    assert shown["errors"][0]["message"] == "no paint left"
    assert shown["estimated_end_at"] is None
    assert (await api.get(f"/api/v1/runs/{run}/results")).json() == {"lines": ["bad 0", "bad 1"], "cut": ""}
    first = (await api.get(f"/api/v1/runs/{run}/events", params={"limit": 2})).json()
    rest = (await api.get(f"/api/v1/runs/{run}/events", params={"after": first["next"]})).json()
    kinds = [event["kind"] for event in first["events"] + rest["events"]]
    assert (kinds[0], kinds[-1], rest["next"]) == ("start", "end", None)


async def test_cancel_returns_the_state_and_may_be_repeated(api: Api) -> None:
    run = await api.start()
    for _ in range(2):
        answer = await api.post(f"/api/v1/runs/{run}/cancel")
        assert (answer.status_code, answer.json()) == (200, {"id": run, "state": "cancelled"})
    events = (await api.get(f"/api/v1/runs/{run}/events")).json()["events"]
    assert [event["data"]["by"] for event in events if event["kind"] == "action"] == ["key test"]


@pytest.mark.parametrize("path", ["", "/events", "/results"])
async def test_a_missing_run_is_not_found(api: Api, path: str) -> None:
    answer = await api.get(f"/api/v1/runs/{uuid4()}{path}")
    assert (answer.status_code, answer.json()["code"]) == (404, "NOT_FOUND")


async def test_pipelines_describe_their_inputs(api: Api) -> None:
    (listed,) = (await api.get("/api/v1/pipelines")).json()["pipelines"]
    assert listed["steps"] == ["lines", "image", "cut"]
    assert listed["input_schema"]["properties"]["topic"]["default"] == "tea"
    assert (await api.get("/api/v1/pipelines/film")).json() == listed
    assert "did you mean 'film'?" in (await api.get("/api/v1/pipelines/flim")).json()["detail"]


UNRESTRICTED = {"concurrency": None, "paused_at": None, "paused_by": None, "pause_reason": None}


async def test_a_queue_is_paused_resumed_and_limited_over_http(api: Api) -> None:
    await api.start()
    pause = "/api/v1/queues/default/pause"
    paused = (await api.post(pause, json={"reason": "new GPU"})).json()
    assert paused["paused_at"] is not None
    assert (paused["paused_by"], paused["pause_reason"]) == ("test", "new GPU")
    own = await api.make_key("pools:read", tenant="ours")
    (seen,) = (await api.get("/api/v1/queues", key=own)).json()["queues"]
    assert (seen["paused_at"], seen["paused_by"], seen["pause_reason"]) == (paused["paused_at"], None, None)
    resumed = (await api.post("/api/v1/queues/default/resume")).json()
    limited = (await api.call("PUT", "/api/v1/queues/default", json={"concurrency": 4})).json()
    assert (resumed["paused_at"], resumed["concurrency"], limited["concurrency"]) == (None, None, 4)
    for path in ("pause", "resume"):
        assert (await api.post(f"/api/v1/queues/none/{path}", json={})).status_code == 404
    assert (await api.call("PUT", "/api/v1/queues/none", json={"concurrency": 4})).status_code == 404
    assert (await api.call("PUT", "/api/v1/queues/default", json={"concurrency": -1})).status_code == 422


async def test_a_worker_is_drained_over_http(api: Api) -> None:
    async with api.sandbox.manual_worker() as worker:
        drained = (await api.post(f"/api/v1/workers/{worker.worker}/drain")).json()
        assert (drained["id"], drained["drain_requested_at"] is None) == (worker.worker, False)
        (listed,) = await api.client.workers.list()
        assert listed.drain_requested_by == "test"
    assert (await api.post(f"/api/v1/workers/{worker.worker}/drain")).status_code == 404
    assert (await api.post(f"/api/v1/workers/{2**40}/drain")).status_code == 404


async def test_queues_show_their_jobs(api: Api) -> None:
    await api.start()
    later = await api.sandbox.clock.now() + timedelta(hours=1)
    await api.client.start("film", run_at=later)
    await api.client.start("film")
    async with api.sandbox.manual_worker() as manual_worker:
        await manual_worker.claim(1)
        await api.sandbox.clock.advance(timedelta(seconds=30))
        (queue,) = (await api.get("/api/v1/queues")).json()["queues"]
        (worker,) = (await api.get("/api/v1/workers")).json()["workers"]
    held = {"ready": 1, "running": 1, "delayed": 1}
    assert queue == {"queue": "default", **held, "oldest_seconds": 30.0, "workers": 0, **UNRESTRICTED}
    assert (worker["name"], worker["heartbeat_age_seconds"]) == ("sandbox", 30.0)


async def test_a_tenant_s_key_sees_its_own_jobs_and_no_machine(api: Api) -> None:
    own = await api.make_key("pools:read", tenant="ours")
    nobody = await api.make_key("pools:read", tenant="new")
    for tenant in ("ours", "ours", "theirs", "theirs", "theirs"):
        await api.client.start("film", tenant=tenant)
    await api.client.start("film", tenant="ours", run_at=await api.sandbox.clock.now() + timedelta(hours=1))
    async with api.sandbox.manual_worker() as manual_worker:
        await manual_worker.claim(1)
        await api.sandbox.clock.advance(timedelta(seconds=30))
        (queue,) = (await api.get("/api/v1/queues", key=own)).json()["queues"]
        (empty,) = (await api.get("/api/v1/queues", key=nobody)).json()["queues"]
        (worker,) = (await api.get("/api/v1/workers", key=own)).json()["workers"]
    own_jobs = {"ready": 1, "running": 1, "delayed": 1, "oldest_seconds": 30.0}
    no_jobs = {"ready": 0, "running": 0, "delayed": 0, "oldest_seconds": None}
    assert queue == {"queue": "default", **own_jobs, "workers": 0, **UNRESTRICTED}
    assert empty == {"queue": "default", **no_jobs, "workers": 0, **UNRESTRICTED}
    assert worker["name"] == f"worker {worker['id']}"


async def test_a_tenant_s_key_sees_its_own_jobs_that_wait_for_a_pool(open_api: OpenApi) -> None:
    pooled = Pipeline("pooled")

    @pooled.step(pool=Pool("gpu", capacity=1))
    def drawn() -> int:
        return 1

    async with open_api(application=App("pooled", pipelines=[pooled])) as api:
        own = await api.make_key("pools:read", tenant="ours")
        for tenant in ("ours", "theirs", "theirs"):
            await api.client.start("pooled", tenant=tenant)
        for path in ("/api/v1/pools/gpu", "/api/v1/pools"):
            shown = [(await api.get(path, key=key)).json() for key in (own, api.key)]
            assert [each.get("pools", [each])[0]["waiting"] for each in shown] == [1, 3]


async def test_runs_are_listed_since_a_time(api: Api) -> None:
    await api.post("/api/v1/runs", json={"pipeline": "film"})
    answers = {
        since: await api.get("/api/v1/runs", params={"since": since})
        for since in ("0001-01-01T00:00:00Z", "2020-01-01T00:00:00-03:00", "2999-01-01T00:00:00Z")
    }
    assert [len(answer.json()["runs"]) for answer in answers.values()] == [1, 1, 0]
    assert (await api.get("/api/v1/runs", params={"since": "2020-01-01T00:00:00"})).status_code == 422


async def test_child_runs_are_counted_and_found_by_their_parent(open_api: OpenApi) -> None:
    class Names(BaseModel):
        names: list[str]

    parent, child = Pipeline("parent", Names), Pipeline("child")

    @child.step
    def one() -> int:
        return 1

    @parent.each("names")
    async def answer(name: str, *, ctx: Context) -> int:
        tenant = "other" if name == "c" else None
        return int((await ctx.run_child(child, tenant=tenant))["one"])

    async with open_api(application=App("families", pipelines=[parent, child])) as api:
        run = str((await api.sandbox.run(parent, {"names": ["a", "b", "c"]}, tenant=ALL_TENANTS)).id)
        shown = (await api.get(f"/api/v1/runs/{run}")).json()
        assert (shown["parent"], shown["children"]) == (None, {"completed": 3})
        page = (await api.get("/api/v1/runs", params={"parent": run, "limit": 2})).json()
        assert [each["parent"] for each in page["runs"]] == [run, run]
        rest = (await api.get("/api/v1/runs", params={"parent": run, "before": page["next"]})).json()
        assert (len(rest["runs"]), rest["next"]) == (1, None)

        key = await api.make_key("runs:read", tenant="other")
        assert (await api.get(f"/api/v1/runs/{run}", key=key)).status_code == 404
        assert len((await api.get("/api/v1/runs", params={"parent": run}, key=key)).json()["runs"]) == 1


async def test_what_follows_a_rejection_cannot_be_started(open_api: OpenApi) -> None:
    """Its input says who rejected what, which nobody else may claim."""
    cleanup = Pipeline("cleanup", Rejection)
    article = Pipeline("article", on_rejected=cleanup)
    for pipeline in (cleanup, article):
        pipeline.step(_say_hello)
    forged = {"run": str(uuid4()), "run_input": {}, "step": "text", "by": "ana", "notes": "bad"}
    async with open_api(application=App("blog", pipelines=[cleanup, article])) as api:
        one = await api.post("/api/v1/runs", json={"pipeline": "cleanup", "input": forged})
        many = await api.post("/api/v1/runs/bulk", json={"pipeline": "cleanup", "inputs": [forged]})
        assert (one.status_code, one.json()["code"], many.status_code) == (409, "CONFLICT", 409)
        assert (await api.post("/api/v1/runs", json={"pipeline": "article"})).status_code == 202


async def test_the_nearest_field_is_suggested_for_an_unknown_one(api: Api) -> None:
    answer = await api.post("/api/v1/runs", json={"pipeline": "film", "inputs": {"topic": "tea"}})
    assert answer.status_code == 422
    assert answer.json()["errors"] == [{"field": "inputs", "message": "unknown field; did you mean 'input'?"}]


def _say_hello() -> str:
    return "hello"
