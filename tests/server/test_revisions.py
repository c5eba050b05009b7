"""Reruns over HTTP: named steps, staleness, revisions, forks."""

from __future__ import annotations

from collections.abc import AsyncIterator
from typing import Any

import pytest

from tests.server.api import Api
from tests.server.articles import app, approve_all, open_review, run_to_completion, start_until_review
from tests.server.conftest import OpenApi


@pytest.fixture
async def article_api(open_api: OpenApi) -> AsyncIterator[Api]:
    async with open_api(application=app) as api:
        yield api


async def rerun(api: Api, run: str, **body: Any) -> Any:
    return await api.post(f"/api/v1/runs/{run}/rerun", json=body)


async def test_a_step_is_rerun_and_unchanged_dependents_are_reused(article_api: Api) -> None:
    run = await run_to_completion(article_api)
    assert (await rerun(article_api, run, steps=["outline"], reason="news")).json() == {
        "id": run,
        "revision": 2,
        "jobs": 1,
    }
    await article_api.sandbox.work()
    assert (await article_api.get(f"/api/v1/runs/{run}")).json()["state"] == "completed"
    made = (await article_api.get(f"/api/v1/runs/{run}/steps/page/revisions")).json()["revisions"]
    assert [(one["revision"], one["reused_from"]) for one in made] == [(2, 1), (1, None)]
    events = (await article_api.get(f"/api/v1/runs/{run}/events")).json()["events"]
    (act,) = [event["data"] for event in events if event["kind"] == "action"]
    assert (act["action"], act["reason"], act["by"]) == ("rerun", "news", "key test")


@pytest.mark.parametrize(("body", "jobs"), [({"group": "texts"}, 2), ({"from_step": "titles"}, 1)])
async def test_groups_and_everything_from_a_step_on_are_rerun(
    article_api: Api, body: dict[str, Any], jobs: int
) -> None:
    run = await run_to_completion(article_api)
    assert (await rerun(article_api, run, **body)).json()["jobs"] == jobs


async def test_a_step_rerun_alone_leaves_dependents_stale_until_they_rerun(article_api: Api) -> None:
    run = await run_to_completion(article_api)
    edit = {"step": "outline", "value": "mine", "downstream": False}
    assert (await article_api.post(f"/api/v1/runs/{run}/edit", json=edit)).json()["jobs"] == 0
    stale = (await article_api.get(f"/api/v1/runs/{run}/stale")).json()["stale"]
    assert stale == [{"step": "good_outline", "item": ""}]
    assert (await rerun(article_api, run, stale=True)).json()["revision"] == 3
    await approve_all(article_api, await open_review(article_api, run))
    assert (await article_api.get(f"/api/v1/runs/{run}/results")).json()["page"] == "mine!"
    assert (await article_api.get(f"/api/v1/runs/{run}/stale")).json()["stale"] == []


async def test_an_isolated_rerun_has_its_own_revision(article_api: Api) -> None:
    run = await run_to_completion(article_api)
    assert (await rerun(article_api, run, steps=["page"], downstream=False, reuse=False)).json()["revision"] == 2
    await article_api.sandbox.work()
    assert (await article_api.get(f"/api/v1/runs/{run}")).json()["revision"] == 2


@pytest.mark.parametrize(
    ("body", "code"),
    [
        ({"steps": ["outlines"]}, "NOT_FOUND"),
        ({"group": "text"}, "NOT_FOUND"),
        ({"downstream": False}, "INVALID_INPUT"),
        ({"step": "page", "steps": ["page"]}, "INVALID_INPUT"),
    ],
)
async def test_a_rerun_that_is_impossible_is_refused_with_a_reason(
    article_api: Api, body: dict[str, Any], code: str
) -> None:
    run = await run_to_completion(article_api)
    assert (await rerun(article_api, run, **body)).json()["code"] == code


async def test_an_unknown_step_has_no_revisions(article_api: Api) -> None:
    review = await start_until_review(article_api)
    refused = await article_api.get(f"/api/v1/runs/{review['run']}/steps/nothing/revisions")
    assert (refused.status_code, refused.json()["code"]) == (404, "NOT_FOUND")


async def test_a_fork_shares_results_and_names_its_original(article_api: Api) -> None:
    run = await run_to_completion(article_api)
    forked = await article_api.post(f"/api/v1/runs/{run}/fork", json={"input": {"tone": "loud"}})
    assert forked.status_code == 202
    new = forked.json()["id"]
    assert forked.headers["location"] == f"/api/v1/runs/{new}"
    await article_api.sandbox.work(advance_clock=False)
    shown = (await article_api.get(f"/api/v1/runs/{new}")).json()
    assert (shown["forked_from"], shown["input"]) == (run, {"topic": "tea", "tone": "loud"})
    await approve_all(article_api, await open_review(article_api, new))
    assert (await article_api.get(f"/api/v1/runs/{new}/results")).json()["page"] == "loud outline of tea!"
    assert (await article_api.get(f"/api/v1/runs/{run}/results")).json()["page"] == "calm outline of tea!"


async def test_a_fork_of_a_running_run_or_with_an_invalid_input_is_rejected(article_api: Api) -> None:
    review = await start_until_review(article_api)
    path = f"/api/v1/runs/{review['run']}/fork"
    assert (await article_api.post(path, json={})).json()["code"] == "RUN_BUSY"
    assert (await article_api.post(path, json={"input": {"tone": 3}})).json()["code"] == "INVALID_INPUT"
