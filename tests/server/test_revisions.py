"""Work made anew over HTTP: reruns of what is named, staleness, revisions, forks."""

from __future__ import annotations

from collections.abc import AsyncIterator
from typing import Any

import pytest

from tests.server.api import Api
from tests.server.articles import app, asked, completed, go_on, open_review
from tests.server.conftest import OpenApi


@pytest.fixture
async def desk(open_api: OpenApi) -> AsyncIterator[Api]:
    async with open_api(application=app) as api:
        yield api


async def rerun(api: Api, run: str, **body: Any) -> Any:
    return await api.post(f"/api/v1/runs/{run}/rerun", json=body)


async def test_a_step_is_made_anew_and_what_would_be_the_same_is_kept(desk: Api) -> None:
    run = await completed(desk)
    assert (await rerun(desk, run, steps=["outline"], why="news")).json() == {"id": run, "revision": 2, "jobs": 1}
    await desk.sandbox.work()
    assert (await desk.get(f"/api/v1/runs/{run}")).json()["state"] == "completed"
    made = (await desk.get(f"/api/v1/runs/{run}/steps/page/revisions")).json()["revisions"]
    assert [(one["revision"], one["reused_from"]) for one in made] == [(2, 1), (1, None)]
    events = (await desk.get(f"/api/v1/runs/{run}/events")).json()["events"]
    (act,) = [event["data"] for event in events if event["kind"] == "act"]
    assert (act["act"], act["why"], act["by"]) == ("rerun", "news", "key test")


@pytest.mark.parametrize(("body", "jobs"), [({"group": "texts"}, 2), ({"after": "titles"}, 1)])
async def test_groups_and_everything_after_a_step_are_made_anew(desk: Api, body: dict[str, Any], jobs: int) -> None:
    run = await completed(desk)
    assert (await rerun(desk, run, **body)).json()["jobs"] == jobs


async def test_a_step_made_anew_alone_leaves_others_stale_until_that_is_mended(desk: Api) -> None:
    run = await completed(desk)
    edit = {"step": "outline", "value": "mine", "and_continue": False}
    assert (await desk.post(f"/api/v1/runs/{run}/edit", json=edit)).json()["jobs"] == 0
    stale = (await desk.get(f"/api/v1/runs/{run}/stale")).json()["stale"]
    assert stale == [{"step": "good_outline", "item": ""}]
    assert (await rerun(desk, run, stale=True)).json()["revision"] == 3
    await go_on(desk, await open_review(desk, run))
    assert (await desk.get(f"/api/v1/runs/{run}/results")).json()["page"] == "mine!"
    assert (await desk.get(f"/api/v1/runs/{run}/stale")).json()["stale"] == []


async def test_a_step_alone_is_made_anew_at_a_revision_of_its_own(desk: Api) -> None:
    run = await completed(desk)
    assert (await rerun(desk, run, steps=["page"], alone=True, fresh=True)).json()["revision"] == 2
    await desk.sandbox.work()
    assert (await desk.get(f"/api/v1/runs/{run}")).json()["revision"] == 2


@pytest.mark.parametrize(
    ("body", "code"),
    [
        ({"steps": ["outlines"]}, "NOT_FOUND"),
        ({"group": "text"}, "NOT_FOUND"),
        ({"alone": True}, "INVALID_INPUT"),
        ({"step": "page", "steps": ["page"]}, "INVALID_INPUT"),
    ],
)
async def test_what_cannot_be_made_anew_is_said(desk: Api, body: dict[str, Any], code: str) -> None:
    run = await completed(desk)
    assert (await rerun(desk, run, **body)).json()["code"] == code


async def test_an_unknown_step_has_no_revisions(desk: Api) -> None:
    review = await asked(desk)
    refused = await desk.get(f"/api/v1/runs/{review['run']}/steps/nothing/revisions")
    assert (refused.status_code, refused.json()["code"]) == (404, "NOT_FOUND")


async def test_a_fork_shares_results_and_says_where_it_came_from(desk: Api) -> None:
    run = await completed(desk)
    forked = await desk.post(f"/api/v1/runs/{run}/fork", json={"input": {"tone": "loud"}})
    assert forked.status_code == 202
    new = forked.json()["id"]
    assert forked.headers["location"] == f"/api/v1/runs/{new}"
    await desk.sandbox.work(until_later=False)
    shown = (await desk.get(f"/api/v1/runs/{new}")).json()
    assert (shown["forked_from"], shown["input"]) == (run, {"topic": "tea", "tone": "loud"})
    await go_on(desk, await open_review(desk, new))
    assert (await desk.get(f"/api/v1/runs/{new}/results")).json()["page"] == "loud outline of tea!"
    assert (await desk.get(f"/api/v1/runs/{run}/results")).json()["page"] == "calm outline of tea!"


async def test_a_fork_of_a_run_at_work_or_with_a_wrong_input_is_refused(desk: Api) -> None:
    review = await asked(desk)
    path = f"/api/v1/runs/{review['run']}/fork"
    assert (await desk.post(path, json={})).json()["code"] == "AT_WORK"
    assert (await desk.post(path, json={"input": {"tone": 3}})).json()["code"] == "INVALID_INPUT"
