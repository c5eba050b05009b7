"""Reviews over HTTP: open reviews and decisions."""

from __future__ import annotations

from collections.abc import AsyncIterator
from typing import Any
from uuid import uuid4

import pytest

from retoma import minutes
from retoma.states import ReviewState
from tests.server import pictures
from tests.server.api import Api
from tests.server.articles import app, decide, open_review, start_until_review
from tests.server.conftest import OpenApi

REVIEWS = "/api/v1/reviews"


@pytest.fixture
async def article_api(open_api: OpenApi) -> AsyncIterator[Api]:
    async with open_api(application=app) as api:
        yield api


async def test_a_review_shows_its_subject_and_its_form(article_api: Api) -> None:
    review = await start_until_review(article_api)
    answer = await article_api.get(f"{REVIEWS}/{review['id']}")
    shown = answer.json()
    assert answer.headers["etag"] == '"1"'
    assert shown["subjects"] == [{"step": "outline", "revision": 1, "value": "calm outline of tea"}]
    assert (shown["form"], shown["has_form"]) == ({"type": "string"}, False)
    assert (shown["can_send_back_to"], shown["times_sent_back"], shown["max_revisions"]) == (["outline", "facts"], 0, 2)
    assert [event["data"]["what"] for event in shown["history"]] == ["opened"]


async def test_an_approval_lets_the_run_continue_and_records_its_author(article_api: Api) -> None:
    review = await start_until_review(article_api)
    answer = await decide(article_api, review, "approve", seen=1)
    decided = answer.json()
    assert (answer.status_code, decided["state"]) == (200, "approved")
    assert (decided["decided_by"], decided["via"]) == ("test", "api")
    await article_api.sandbox.work(advance_clock=False)
    assert (await open_review(article_api, review["run"]))["step"] == "choice"


async def test_missing_form_values_are_reported_per_field_and_the_review_stays_open(article_api: Api) -> None:
    review = await start_until_review(article_api)
    await decide(article_api, review, "approve", value="mine")
    await article_api.sandbox.work(advance_clock=False)
    form = await open_review(article_api, review["run"])
    shown = (await article_api.get(f"{REVIEWS}/{form['id']}")).json()
    assert (shown["has_form"], shown["form"]["required"]) == (True, ["title"])
    refused = await decide(article_api, form, "approve", value={"title": "first", "tags": [1]})
    assert (refused.status_code, refused.json()["code"]) == (422, "INVALID_INPUT")
    assert [error["field"] for error in refused.json()["errors"]] == ["title", "tags.0"]
    assert (await decide(article_api, form, "approve")).status_code == 422
    assert (await decide(article_api, form, "approve", value={"title": 1})).status_code == 200
    await article_api.sandbox.work()
    assert (await article_api.get(f"/api/v1/runs/{review['run']}/results")).json()["page"] == "mine?"


async def test_work_is_sent_back_with_its_feedback_and_appears_in_history(article_api: Api) -> None:
    review = await start_until_review(article_api)
    comments = [{"text": "too slow", "at": 2.5, "to": 4}]
    back = await decide(article_api, review, "send_back", notes="shorter", to="outline", comments=comments)
    assert (back.json()["state"], back.json()["back_to"]) == ("sent_back", "outline")
    assert (back.json()["feedback"]["comments"], back.json()["has_form"]) == (comments, False)
    await article_api.sandbox.work(advance_clock=False)
    again = (await article_api.get(f"{REVIEWS}/{(await open_review(article_api, review['run']))['id']}")).json()
    assert again["subjects"][0]["value"] == "calm outline of tea, shorter"
    assert (again["revision"], again["times_sent_back"]) == (2, 1)
    assert [event["data"]["what"] for event in again["history"]] == ["opened", "sent_back", "opened"]
    previous = (await article_api.get(f"{REVIEWS}/{review['id']}")).json()
    assert previous["comments"] == comments


async def test_work_is_sent_back_with_the_fields_of_its_feedback_form(article_api: Api) -> None:
    review = await start_until_review(article_api)
    shown = (await article_api.get(f"{REVIEWS}/{review['id']}")).json()
    assert list(shown["feedback_form"]["properties"]) == ["tone", "words"]
    refused = await decide(article_api, review, "send_back", extra={"tone": ["warm"], "words": {"a": 1}})
    assert [error["field"] for error in refused.json()["errors"]] == ["tone", "words.a"]
    assert (
        await decide(article_api, review, "send_back", extra={"words": {}})
    ).status_code == 422  # which says nothing
    assert (await decide(article_api, review, "send_back", extra={"tone": "warm"})).status_code == 200
    await article_api.sandbox.work(advance_clock=False)
    again = (await article_api.get(f"{REVIEWS}/{(await open_review(article_api, review['run']))['id']}")).json()
    assert again["subjects"][0]["value"] == "warm outline of tea, "
    await decide(article_api, again, "approve")
    await article_api.sandbox.work(advance_clock=False)
    formless = await decide(
        article_api, await open_review(article_api, review["run"]), "send_back", notes="x", extra={"tone": "cold"}
    )
    assert (formless.status_code, "has no feedback form" in formless.json()["detail"]) == (422, True)


async def test_the_first_decision_wins_and_others_see_who_decided(article_api: Api) -> None:
    review = await start_until_review(article_api)
    await decide(article_api, review, "reject", notes="off topic")
    late = await decide(article_api, review, "approve")
    assert (late.status_code, late.json()["code"]) == (409, "ALREADY_DECIDED")
    winner = late.json()["winner"]
    assert (winner["state"], winner["decided_by"]) == ("rejected", "test")
    assert "T" in winner["decided_at"]


async def test_the_same_key_gets_the_same_answer(article_api: Api) -> None:
    review = await start_until_review(article_api)
    headers = {"Idempotency-Key": "click-1"}
    first = await decide(article_api, review, "approve", headers=headers)
    again = await decide(article_api, review, "approve", headers=headers)
    assert (again.status_code, again.json()["decided_at"]) == (200, first.json()["decided_at"])
    other = await decide(article_api, review, "approve", headers={"Idempotency-Key": "click-2"})
    assert other.json()["code"] == "ALREADY_DECIDED"
    edited = await decide(article_api, review, "approve", value="mine", headers=headers)
    assert (edited.status_code, edited.json()["code"]) == (422, "IDEMPOTENCY_KEY_REUSED")


@pytest.mark.parametrize("seen", [{"seen": 7}, {"headers": {"If-Match": '"7"'}}, {"headers": {"If-Match": '"other"'}}])
async def test_a_decision_about_another_revision_is_refused(article_api: Api, seen: dict[str, Any]) -> None:
    review = await start_until_review(article_api)
    refused = await decide(article_api, review, "approve", **seen)
    assert (refused.status_code, refused.json()["code"]) == (409, "REVISION_CHANGED")
    assert (await decide(article_api, review, "approve", headers={"If-Match": '"1"'})).status_code == 200


@pytest.mark.parametrize(
    ("action", "more"),
    [
        ("reject", {}),
        ("send_back", {}),
        ("approve", {"value": None}),
        ("send_back", {"notes": "x", "to": "page"}),
        ("approve", {"to": "outline"}),
    ],
)
async def test_an_invalid_decision_is_reported_and_changes_nothing(
    article_api: Api, action: str, more: dict[str, Any]
) -> None:
    review = await start_until_review(article_api)
    refused = await decide(article_api, review, action, **more)
    assert (refused.status_code, refused.json()["code"]) == (422, "INVALID_INPUT")
    assert (await open_review(article_api, review["run"]))["id"] == review["id"]


async def test_a_value_that_is_no_json_is_refused(article_api: Api) -> None:
    review = await start_until_review(article_api)
    refused = await article_api.post(
        f"{REVIEWS}/{review['id']}/decision",
        content=b'{"action": "approve", "value": NaN}',
        headers={"Content-Type": "application/json"},
    )
    assert refused.status_code == 422


async def test_a_decision_is_undone_before_it_takes_effect(article_api: Api) -> None:
    review = await start_until_review(article_api)
    rui, ana = [await article_api.make_key("reviews:write", name=name) for name in ("rui", "ana")]
    path = f"{REVIEWS}/{review['id']}"
    await article_api.post(f"{path}/decision", json={"action": "approve", "undo_seconds": 60}, key=rui)
    undone = await article_api.post(f"{path}/undo", key=ana)
    assert (undone.status_code, undone.json()["state"]) == (200, "open")
    history = (await article_api.get(path)).json()["history"]
    assert [(event["data"]["what"], event["data"].get("by")) for event in history[-2:]] == [
        ("approved", "rui"),
        ("undone", "ana"),
    ]
    await decide(article_api, review, "approve")
    late = await article_api.post(f"{REVIEWS}/{review['id']}/undo")
    assert (late.status_code, late.json()["code"]) == (409, "CONFLICT")


async def test_others_see_who_is_viewing_a_review_and_its_assignee(article_api: Api) -> None:
    review = await start_until_review(article_api)
    path = f"{REVIEWS}/{review['id']}"
    other = await article_api.make_key("reviews:write", name="rui")
    assert (await article_api.post(f"{path}/claim", key=other)).json()["claimed_by"] == "rui"
    assert (await article_api.post(f"{path}/claim")).json()["claimed_by"] == "rui"
    assert (await article_api.post(f"{path}/assign", json={"assignee": "ana"})).json()["assignee"] == "ana"
    assert len((await article_api.get(REVIEWS, params={"assignee": "ana"})).json()["reviews"]) == 1
    await decide(article_api, review, "approve")
    for act in ("claim", "assign"):
        assert (await article_api.post(f"{path}/{act}", json={"assignee": None})).json()["code"] == "ALREADY_DECIDED"


async def test_reviews_are_filtered_and_paged_oldest_first(article_api: Api) -> None:
    made = []
    for topic in ("a", "b", "c"):
        made.append(await start_until_review(article_api, topic=topic))
        await article_api.sandbox.clock.advance(minutes(1))
    await decide(article_api, made[0], "reject", notes="no")

    async def list_found(**asked_for: Any) -> list[str]:
        return [one["id"] for one in (await article_api.get(REVIEWS, params=asked_for)).json()["reviews"]]

    ids = [one["id"] for one in made]
    assert await list_found() == ids[1:]
    assert await list_found(state="rejected") == ids[:1]
    assert await list_found(state=list(ReviewState)) == ids
    assert (
        await list_found(step="choice") == await list_found(pipeline="film") == await list_found(run=str(uuid4())) == []
    )
    first = (await article_api.get(REVIEWS, params={"limit": 1})).json()
    assert await list_found(limit=1, after=first["next"]) == ids[2:]
    assert (await article_api.get(REVIEWS, params={"after": str(uuid4())})).status_code == 404


async def test_a_batch_reports_each_outcome(article_api: Api) -> None:
    one, other = await start_until_review(article_api), await start_until_review(article_api, topic="chá")
    theirs = await start_until_review(article_api, tenant="blog")
    key = await article_api.make_key("reviews:write", tenant="default")
    decisions = [
        {"review": one["id"], "action": "approve"},
        {"review": one["id"], "action": "reject", "notes": "no"},
        {"review": other["id"], "action": "reject"},
        {"review": theirs["id"], "action": "approve"},
    ]
    answer = await article_api.post(f"{REVIEWS}/decisions", key=key, json={"decisions": decisions})
    outcomes = answer.json()["outcomes"]
    assert answer.status_code == 200
    assert [outcome["review"] for outcome in outcomes] == [one["review"] for one in decisions]
    assert outcomes[0]["current"]["state"] == "approved"
    assert [outcome["problem"] and outcome["problem"]["code"] for outcome in outcomes] == [
        None,
        "ALREADY_DECIDED",
        "INVALID_INPUT",
        "NOT_FOUND",
    ]
    assert outcomes[1]["problem"]["winner"]["state"] == "approved"
    assert (await open_review(article_api, theirs["run"]))["id"] == theirs["id"]


async def test_at_most_two_hundred_reviews_are_decided_at_once(article_api: Api) -> None:
    decisions = [{"review": str(uuid4()), "action": "approve"}] * 201
    assert (await article_api.post(f"{REVIEWS}/decisions", json={"decisions": decisions})).status_code == 422
    assert (await article_api.post(f"{REVIEWS}/decisions", json={"decisions": []})).status_code == 422


async def test_a_run_reports_which_review_it_waits_for(article_api: Api) -> None:
    review = await start_until_review(article_api)
    shown = (await article_api.get(f"/api/v1/runs/{review['run']}")).json()
    assert shown["state"] == "paused"
    (wait,) = shown["waits"]
    assert (wait["step"], wait["reason"]) == ("good_outline", "person")
    assert "waiting for a person" in wait["explanation"]
    assert [(one["id"], one["step"], one["planned"]) for one in shown["reviews"]] == [
        (review["id"], "good_outline", True)
    ]


async def test_a_step_that_asks_for_help_gives_a_reason_and_continues_with_its_result(article_api: Api) -> None:
    review = await start_until_review(article_api, topic="unsure")
    assert (review["planned"], review["reason"]["code"]) == (False, "DISAGREE")
    shown = (await article_api.get(f"{REVIEWS}/{review['id']}")).json()
    assert shown["form"] == {"type": "array", "items": {"type": "string"}}
    (wait,) = (await article_api.get(f"/api/v1/runs/{review['run']}")).json()["waits"]
    assert wait["reason"] == "person"
    await decide(article_api, review, "approve")
    await article_api.sandbox.work(advance_clock=False)
    assert (await open_review(article_api, review["run"]))["step"] == "good_outline"


@pytest.mark.parametrize(("pipeline", "ends"), [("album", False), ("passport", True)])
async def test_a_review_says_whether_a_rejection_ends_the_run(open_api: OpenApi, pipeline: str, ends: bool) -> None:
    async with open_api(application=pictures.app) as api:
        cup, _ = await pictures.start_until_reviews(api.sandbox, pipeline)
        assert (await api.get(f"{REVIEWS}/{cup.id}")).json()["rejection_ends_run"] is ends
        decided = await decide(api, {"id": cup.id}, "reject", notes="blurred")
        assert (decided.status_code, decided.json()["state"]) == (200, "rejected")
        await api.sandbox.work(advance_clock=False)
        assert (await api.get(f"/api/v1/runs/{cup.run}")).json()["state"] == ("rejected" if ends else "paused")


async def test_a_run_reports_a_rejected_item_as_failed_with_who_and_why(open_api: OpenApi) -> None:
    async with open_api(application=pictures.app) as api:
        cup, leaf = await pictures.start_until_reviews(api.sandbox)
        await decide(api, {"id": cup.id}, "reject", notes="blurred")
        run = await pictures.approve_and_end(api.sandbox, leaf)
        shown = (await api.get(f"/api/v1/runs/{run}")).json()
        assert (shown["state"], shown["waits"]) == ("completed_with_errors", [])
        (error,) = shown["errors"]
        assert {name: error[name] for name in ("step", "item", "code", "message")} == {
            "step": "good_picture",
            "item": "cup",
            "code": "REJECTED",
            "message": "rejected by test: blurred",
        }
        items = (await api.get(f"/api/v1/runs/{run}/items")).json()["items"]
        assert [(item["item"], item["state"], item["code"]) for item in items] == [
            ("cup", "failed", "REJECTED"),
            ("leaf", "succeeded", None),
        ]
