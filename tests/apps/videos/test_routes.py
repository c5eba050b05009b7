"""Orders, lists, channels, decisions and batches through the API."""

from __future__ import annotations

import asyncio
from datetime import timedelta
from pathlib import Path
from typing import Any
from uuid import UUID, uuid4

import pytest

from retoma import App, File, Pipeline
from retoma.client.tenants import TenantProfiles
from retoma.store.database import Database
from retoma_apps.videos.application import make_app
from retoma_apps.videos.operations.checkpoints import file_url
from retoma_apps.videos.pipeline import longform
from retoma_apps.videos.steps.writing.bundled import BundledWriter
from tests.apps.videos.small_services import make_small_services
from tests.apps.videos.video_app import TOPIC, VideoApp
from tests.conftest import empty_database
from tests.server.api import an_api


async def test_an_order_starts_a_video_and_returns_its_url(video_app: VideoApp) -> None:
    answer = await video_app.api.post("/api/v1/videos", json={"topic": f"  {TOPIC} ", "channel": "financas"})
    body = answer.json()
    assert (answer.status_code, answer.headers["location"]) == (202, f"/api/v1/videos/{body['id']}")
    assert (body["topic"], body["channel"], body["language"], body["stage"]) == (TOPIC, "financas", "pt-BR", "draft")
    assert await video_app.show(body["id"]) == body


async def test_an_order_takes_missing_fields_from_its_channel(video_app: VideoApp) -> None:
    common = {"language": "en", "voice": "espeak_en", "style": "calm", "seconds": 25, "budget": 2.5}
    channel = {**common, "account": "mine"}
    assert (await video_app.api.call("PUT", "/api/v1/channels/news", json=channel)).json() == channel
    assert (await video_app.api.get("/api/v1/channels/news")).json() == channel
    open_order, own_order = (
        await video_app.order("How bonds work", channel="news"),
        await video_app.order(channel="news", language="pt-BR"),
    )
    run = await video_app.client.runs.get(await _id(video_app, open_order))
    assert run.input == {"topic": "How bonds work", "scheduled_for": None, **common}
    own_run = await video_app.client.runs.get(await _id(video_app, own_order))
    assert (own_run.input["language"], own_run.input["voice"]) == ("pt-BR", "")  # the channel's voice does not speak it


@pytest.mark.parametrize("voice", ["robô", "azure_en_us_guy", "espeak_pt_br"])
async def test_a_voice_unavailable_to_a_channel_is_rejected_and_the_error_lists_others(
    voice: str, video_app: VideoApp
) -> None:
    kept = {"language": "pt-BR", "voice": "espeak_pt_br"}
    assert (await video_app.api.call("PUT", "/api/v1/channels/news", json=kept)).status_code == 200
    answer = await video_app.api.call("PUT", "/api/v1/channels/news", json={"language": "en", "voice": voice})
    assert (answer.status_code, answer.json()["code"]) == (422, "INVALID_INPUT")
    assert "espeak_en" in answer.json()["detail"]
    assert (await video_app.api.get("/api/v1/channels/news")).json()["language"] == "pt-BR"


async def test_a_channel_keeps_a_voice_whose_key_was_removed(video_app: VideoApp) -> None:
    await video_app.client.tenants.set_profile("news", {"voice": "azure_pt_br_antonio"})
    body = {"voice": "azure_pt_br_antonio", "style": "calmo"}
    assert (await video_app.api.call("PUT", "/api/v1/channels/news", json=body)).status_code == 200


@pytest.mark.parametrize(
    "values",
    [
        {"account": "日本語"},
        {"account": "!!!"},
        {"account": "Финансы BR"},
        {"style": "a\0b"},
        {"voice": "espeak_en\0"},
    ],
)
async def test_an_invalid_channel_is_rejected(values: dict[str, str], video_app: VideoApp) -> None:
    answer = await video_app.api.call("PUT", "/api/v1/channels/news", json=values)
    assert (answer.status_code, answer.json()["errors"][0]["field"]) == (422, next(iter(values)))


async def test_the_key_of_a_channel_cannot_choose_its_publishing_account(video_app: VideoApp) -> None:
    await video_app.client.tenants.set_profile("financas", {"account": "ours"})
    key = await video_app.api.make_key("runs:write", tenant="financas")

    def put(**given: Any) -> Any:
        return video_app.api.call("PUT", "/api/v1/channels/financas", key=key, json=given)

    taken, dropped, left, same = (
        await put(account="theirs"),
        await put(account=""),
        await put(),
        await put(account="ours"),
    )
    assert (taken.status_code, taken.json()["code"], dropped.status_code) == (403, "OTHER_ACCOUNT", 403)
    assert [left.json()["account"], same.json()["account"]] == ["ours", "ours"]


async def test_a_channels_own_change_never_undoes_an_administrators_concurrent_change(
    video_app: VideoApp, monkeypatch: pytest.MonkeyPatch
) -> None:
    key, kept = await video_app.api.make_key("runs:write", tenant="financas"), TenantProfiles.set_profile

    async def after_an_administrator(client: TenantProfiles, tenant: str, value: Any, **options: Any) -> Any:
        await kept(client, tenant, {"account": "ours"})
        return await kept(client, tenant, value, **options)

    with monkeypatch.context() as patched:
        patched.setattr(TenantProfiles, "set_profile", after_an_administrator)
        late = await video_app.api.call("PUT", "/api/v1/channels/financas", key=key, json={"style": "calmo"})
    assert (late.status_code, late.json()["code"]) == (409, "CONFLICT")
    assert (await video_app.api.get("/api/v1/channels/financas")).json()["account"] == "ours"


async def test_an_unconfigured_channel_has_the_defaults(video_app: VideoApp) -> None:
    body = (await video_app.api.get("/api/v1/channels/nova")).json()
    assert (body["language"], body["seconds"], body["voice"]) == ("pt-BR", 60, "")


@pytest.mark.parametrize(
    ("body", "field"),
    [
        ({}, "topic"),
        ({"topic": "  x "}, "topic"),
        ({"topic": TOPIC, "language": "fr"}, "language"),
        ({"topic": TOPIC, "scheduled_for": "2031-02-04T12:00:00"}, "scheduled_for"),
        ({"topic": TOPIC, "scheduled_for": "2030-01-01T12:00:00Z"}, "scheduled_for: this time is in the past"),
        ({"topic": TOPIC, "scheduled_for": "0001-01-01T00:00:00+05:00"}, "scheduled_for"),
        ({"topic": TOPIC, "scheduled_for": "9999-12-31T23:59:59-14:00"}, "scheduled_for"),
        ({"topic": TOPIC, "scheduled_for": "9999-12-31T00:00:00Z"}, "scheduled_for"),
        ({"topic": TOPIC, "start_at": "2031-02-04T12:00:00"}, "start_at"),
        ({"topic": TOPIC, "start_at": "2030-01-01T12:00:00Z"}, "start_at: this time is in the past"),
        (
            {"topic": TOPIC, "start_at": "2031-02-04T12:00:00Z", "scheduled_for": "2031-02-04T12:00:00Z"},
            "start_at: work must start before scheduled_for",
        ),
        ({"topic": "!!! …"}, "topic"),
        ({"topic": "\u200b\u200b\u200b"}, "topic"),
        ({"topic": TOPIC, "titel": "x"}, "titel"),
        ({"topic": "x" * 301}, "topic"),
        ({"topic": "a\u0000bc"}, "topic"),
        ({"topic": TOPIC, "channel": "  "}, "channel"),
        ({"topic": TOPIC, "channel": "a/b"}, "channel"),
    ],
)
async def test_an_invalid_order_is_rejected_and_starts_nothing(
    body: dict[str, Any], field: str, video_app: VideoApp
) -> None:
    answer = await video_app.api.post("/api/v1/videos", json=body)
    assert answer.status_code == 422, answer.text
    assert field in answer.text
    assert (await video_app.api.get("/api/v1/videos")).json()["videos"] == []


async def test_a_topic_that_is_not_bundled_is_refused_without_a_language_model(video_app: VideoApp) -> None:
    for body in ({"topic": "História do xadrez"}, {"topic": TOPIC, "language": "en"}):
        answer = await video_app.api.post("/api/v1/videos", json=body)
        assert (answer.status_code, answer.json()["code"]) == (422, "NEEDS_LANGUAGE_MODEL")
        assert "needs a language model: set OPENROUTER_API_KEY, or choose one of" in answer.json()["detail"]
        assert ("Como o café é feito" if "language" not in body else "How coffee is made") in answer.json()["detail"]
    assert (await video_app.api.get("/api/v1/videos")).json()["videos"] == []


async def test_a_bundled_topic_is_told_in_its_own_language_unless_another_is_ordered(video_app: VideoApp) -> None:
    answer = await video_app.api.post("/api/v1/videos", json={"topic": "how coffee is made?"})
    assert (answer.status_code, answer.json()["language"]) == (202, "en")


async def test_the_topics_that_can_be_ordered_are_listed(video_app: VideoApp) -> None:
    listed = (await video_app.api.get("/api/v1/topics")).json()
    assert listed["any_topic"] is False
    assert {"title": "How coffee is made", "language": "en"} in listed["topics"]
    portuguese = (await video_app.api.get("/api/v1/topics?language=pt-BR")).json()["topics"]
    assert {each["language"] for each in portuguese} == {"pt-BR"}
    assert {"Como o café é feito", "Como investir em renda fixa"} <= {each["title"] for each in portuguese}
    for topic in listed["topics"]:
        assert (await video_app.api.post("/api/v1/videos", json=topic_order(topic))).status_code == 202


def topic_order(topic: dict[str, str]) -> dict[str, str]:
    return {"topic": topic["title"], "language": topic["language"]}


async def test_with_a_language_model_any_topic_can_be_ordered(
    video_app: VideoApp, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(BundledWriter, "topics", None)
    answer = await video_app.api.post("/api/v1/videos", json={"topic": "História do xadrez"})
    assert (answer.status_code, answer.json()["language"]) == (202, "pt-BR")
    assert (await video_app.api.get("/api/v1/topics")).json()["any_topic"] is True


async def test_the_same_order_under_one_key_is_one_video(video_app: VideoApp) -> None:
    body, headers = {"topic": TOPIC, "channel": "financas"}, {"Idempotency-Key": "pedido-7"}
    first, again = [await video_app.api.post("/api/v1/videos", json=body, headers=headers) for _ in range(2)]
    other = await video_app.api.post("/api/v1/videos", json=body | {"topic": "Outro assunto"}, headers=headers)
    assert first.json()["id"] == again.json()["id"]
    assert (other.status_code, other.json()["code"]) == (422, "IDEMPOTENCY_KEY_REUSED")
    assert len((await video_app.api.get("/api/v1/videos")).json()["videos"]) == 1


async def test_a_repeated_order_is_the_same_video_though_its_channel_has_changed(video_app: VideoApp) -> None:
    body, headers = {"topic": TOPIC, "channel": "financas"}, {"Idempotency-Key": "pedido-7"}
    first = await video_app.api.post("/api/v1/videos", json=body, headers=headers)
    await video_app.client.tenants.set_profile("financas", {"seconds": 90, "language": "en"})
    again = await video_app.api.post("/api/v1/videos", json=body, headers=headers)
    assert (again.status_code, again.json()) == (202, first.json())
    other = await video_app.api.post("/api/v1/videos", json=body | {"language": "en"}, headers=headers)
    assert (other.status_code, other.json()["code"]) == (422, "IDEMPOTENCY_KEY_REUSED")


async def test_videos_are_listed_newest_first_by_channel_and_page(video_app: VideoApp) -> None:
    ids = [await video_app.order(channel=channel) for channel in ("financas", "viagens", "financas")]
    first = (await video_app.api.get("/api/v1/videos?limit=2")).json()
    second = (await video_app.api.get(f"/api/v1/videos?limit=2&before={first['next']}")).json()
    assert [video["id"] for video in first["videos"] + second["videos"]] == ids[::-1]
    assert second["next"] is None
    (own,) = (await video_app.api.get("/api/v1/videos?channel=viagens")).json()["videos"]
    assert own["id"] == ids[1]


async def test_a_video_shows_its_stage_its_status_and_its_step(video_app: VideoApp) -> None:
    video = await video_app.order()
    before = await video_app.show(video)
    assert (before["stage"], before["status"], before["current_step"]) == ("draft", "running", "knowledge_query")
    checkpoint = await video_app.work_until_review(video)
    shown = await video_app.show(video)
    assert (shown["stage"], shown["status"], shown["current_step"]) == ("scripted", "paused", "script_review")
    assert shown["checkpoint"] == {"id": checkpoint["checkpoint_id"], "type": "script_review"}
    assert shown["steps_done"] == ["knowledge_query", "research", "script_generation"]
    assert shown["title"]


async def test_missing_videos_and_checkpoints_are_not_found(video_app: VideoApp) -> None:
    for path in ("videos", "checkpoints"):
        assert (await video_app.api.get(f"/api/v1/{path}/{uuid4()}")).status_code == 404
    answer = await video_app.api.post(f"/api/v1/checkpoints/{uuid4()}/decision", json={"action": "approved"})
    assert answer.status_code == 404
    digest = "0" * 64
    assert (await video_app.api.get(f"/api/v1/files/audio/{await video_app.order()}/{digest}/a.wav")).status_code == 404


async def test_an_approved_script_lets_the_video_continue(video_app: VideoApp) -> None:
    checkpoint = await video_app.order_until_script_review()
    answer = await video_app.decide(checkpoint, "approved", notes="bom", reviewer="ana")
    body = answer.json()
    assert (answer.status_code, body["status"], body["reviewer"], body["reviewer_notes"]) == (
        200,
        "approved",
        "ana, by key test",
        "bom",
    )
    assert body["reviewed_at"].startswith("2030-01-01T12:00:00")
    assert body["reviewed_at"].endswith("+00:00")
    assert await video_app.checkpoint(checkpoint["checkpoint_id"]) == body
    assert (await video_app.show(checkpoint["video_id"]))["status"] == "running"
    await video_app.work_once()
    shown = await video_app.show(checkpoint["video_id"])
    assert (shown["stage"], shown["status"], shown["current_step"]) == ("producing", "running", "audio_generation")


async def test_a_decision_returns_before_any_further_work_is_done(video_app: VideoApp) -> None:
    checkpoint = await video_app.order_until_script_review()
    await video_app.decide(checkpoint, "approved")
    shown = await video_app.show(checkpoint["video_id"])
    assert (shown["status"], shown["checkpoint"]) == ("running", None)
    assert "audio_generation" not in {
        job.step for job in await video_app.client.runs.list_jobs(await _id(video_app, shown["id"]))
    }


async def test_a_video_continues_with_the_edited_script(video_app: VideoApp) -> None:
    checkpoint = await video_app.order_until_script_review()
    run = await _id(video_app, checkpoint["video_id"])
    script = (await video_app.client.runs.get_results(run))["script_generation"] | {"title": "Um título melhor"}
    assert (await video_app.decide(checkpoint, "approved", value=script)).status_code == 200
    await video_app.work_once()
    assert (await video_app.show(checkpoint["video_id"]))["title"] == "Um título melhor"
    other = await video_app.order_until_script_review()
    refused = await video_app.decide(other, "approved", value={"title": ""})
    assert (refused.status_code, refused.json()["code"]) == (422, "INVALID_INPUT")
    assert (await video_app.checkpoint(other["checkpoint_id"]))["status"] == "pending"


async def test_a_rejected_video_ends_as_rejected_and_shows_where_and_why(video_app: VideoApp) -> None:
    checkpoint = await video_app.order_until_script_review()
    body = (await video_app.decide(checkpoint, "rejected", notes="fora do tema")).json()
    assert (body["status"], body["reviewer_notes"]) == ("rejected", "fora do tema")
    assert body["reviewed_at"]
    await video_app.work()
    shown = await video_app.show(checkpoint["video_id"])
    assert (shown["stage"], shown["status"], shown["current_step"]) == ("rejected", "rejected", None)
    assert shown["error_message"] == "Rejected at script_review: fora do tema"
    assert await video_app.list_started_steps(shown["id"]) == {"knowledge_query", "research", "script_generation"}


async def test_a_revision_reruns_the_script_with_the_notes(video_app: VideoApp) -> None:
    checkpoint = await video_app.order_until_script_review()
    body = (await video_app.decide(checkpoint, "revision_requested", notes="fale do risco")).json()
    assert (body["status"], body["reviewer_notes"]) == ("revision_requested", "fale do risco")
    assert (await video_app.show(checkpoint["video_id"]))["current_step"] == "script_generation"
    again = await video_app.work_until_review(checkpoint["video_id"])
    assert (again["revision"], again["times_sent_back"]) == (checkpoint["revision"] + 1, 1)
    assert "tem risco" not in checkpoint["data"]["script_full"]
    assert "tem risco" in again["data"]["script_full"]


@pytest.mark.parametrize("action", ["approved", "rejected", "revision_requested"])
async def test_every_kind_of_decision_is_recorded_with_author_time_and_channel(
    action: str, video_app: VideoApp
) -> None:
    checkpoint = await video_app.order_until_script_review()
    await video_app.api.sandbox.clock.advance(timedelta(minutes=7))
    body = (await video_app.decide(checkpoint, action, notes="mais curto", reviewer="ana")).json()
    assert (body["status"], body["reviewer"]) == (action, "ana, by key test")
    assert body["reviewed_at"] == "2030-01-01T12:07:00+00:00"
    events = await video_app.client.runs.list_events(await _id(video_app, checkpoint["video_id"]), kinds=["review"])
    opened, decided = [event.data for event in events][:2]
    assert opened["what"] == "opened"
    assert (decided["by"], decided["via"]) == ("ana, by key test", "api")


async def test_a_script_may_be_sent_back_to_its_research_and_nowhere_else(video_app: VideoApp) -> None:
    checkpoint = await video_app.order_until_script_review()
    assert set(checkpoint["can_go_back_to"]) == {"research", "script_generation"}
    wrong = await video_app.decide(checkpoint, "revision_requested", notes="de novo", rewind_to="upload")
    assert wrong.status_code == 422
    await video_app.decide(checkpoint, "revision_requested", notes="fale das debêntures", rewind_to="research")
    assert (await video_app.show(checkpoint["video_id"]))["current_step"] == "research"


@pytest.mark.parametrize(
    "values",
    [
        {"action": "aprovado"},
        {},
        {"action": "approved", "thumbnail": 4},
        {"action": "approved", "clips": [0]},
        {"action": "revision_requested", "rate": 9, "notes": "x"},
        {"action": "approved", "note": "misspelt"},
        {"action": "rejected"},
        {"action": "revision_requested"},
        {"action": "approved", "notes": "a\u0000b"},
        {"action": "revision_requested", "comments": [{"text": "x", "at": 1e300}]},
    ],
)
async def test_an_invalid_decision_is_rejected_and_changes_nothing(values: dict[str, Any], video_app: VideoApp) -> None:
    checkpoint = await video_app.order_until_script_review()
    answer = await video_app.api.post(f"/api/v1/checkpoints/{checkpoint['checkpoint_id']}/decision", json=values)
    assert answer.status_code == 422, answer.text
    assert (await video_app.checkpoint(checkpoint["checkpoint_id"]))["status"] == "pending"


async def test_the_second_reviewer_sees_who_decided_first(video_app: VideoApp) -> None:
    checkpoint = await video_app.order_until_script_review()
    await video_app.decide(checkpoint, "approved", notes="bom", reviewer="ana")
    late = await video_app.decide(checkpoint, "rejected", notes="ruim", reviewer="rui")
    body = late.json()
    assert (late.status_code, body["code"]) == (409, "ALREADY_DECIDED")
    assert (body["decision"]["status"], body["decision"]["reviewer"]) == ("approved", "ana, by key test")
    assert (await video_app.checkpoint(checkpoint["checkpoint_id"]))["reviewer_notes"] == "bom"


async def test_one_of_fifty_concurrent_decisions_wins_and_the_others_see_it(video_app: VideoApp) -> None:
    checkpoint = await video_app.order_until_script_review()
    answers = await asyncio.gather(
        *(video_app.decide(checkpoint, "approved", reviewer=f"pessoa {number}") for number in range(50))
    )
    (winner,) = [answer.json() for answer in answers if answer.status_code == 200]
    late = [answer.json()["decision"]["reviewer"] for answer in answers if answer.status_code == 409]
    assert late == [winner["reviewer"]] * 49


@pytest.mark.parametrize("action", ["approved", "revision_requested"])
async def test_the_same_decision_under_one_key_gets_the_same_answer_and_no_second_effect(
    action: str, video_app: VideoApp
) -> None:
    checkpoint = await video_app.order_until_script_review()

    async def decided() -> tuple[Any, ...]:
        answer = await video_app.decide(checkpoint, action, notes="mais curto", headers={"Idempotency-Key": "d-1"})
        assert answer.status_code == 200, answer.text
        events = await video_app.client.runs.list_events(await _id(video_app, checkpoint["video_id"]))
        return answer.json(), await video_app.show(checkpoint["video_id"]), events

    assert await decided() == await decided()


async def test_a_decision_on_another_revision_is_rejected(video_app: VideoApp) -> None:
    previous = await video_app.order_until_script_review()
    checkpoint = await _send_back(video_app, previous)
    for seen in (previous["revision"], checkpoint["revision"] + 1):
        late = await video_app.decide(checkpoint, "approved", seen=seen)
        assert (late.status_code, late.json()["code"]) == (409, "REVISION_CHANGED")
    assert (await video_app.decide(checkpoint, "approved", seen=checkpoint["revision"])).status_code == 200


async def _send_back(video_app: VideoApp, checkpoint: dict[str, Any]) -> dict[str, Any]:
    """Send a checkpoint back and return the one that follows."""
    await video_app.decide(checkpoint, "revision_requested", notes="mais curto")
    return await video_app.work_until_review(checkpoint["video_id"])


async def test_a_batch_lists_open_checkpoints_of_one_type_by_page(video_app: VideoApp) -> None:
    videos = [await video_app.order() for _ in range(3)]
    await video_app.work()
    first = (await video_app.api.get("/api/v1/checkpoints/batch?type=script_review&limit=2")).json()
    second = (
        await video_app.api.get(f"/api/v1/checkpoints/batch?type=script_review&limit=2&after={first['next']}")
    ).json()
    assert [len(first["batch"]), len(second["batch"]), second["next"]] == [2, 1, None]
    assert (first["total_pending"], second["total_pending"]) == (3, 3)
    rows = first["batch"] + second["batch"]
    assert sorted(row["video_id"] for row in rows) == sorted(videos)
    assert all(row["checkpoint_id"] and row["video_title"] and row["script_preview"] for row in rows)
    none = (await video_app.api.get("/api/v1/checkpoints/batch?type=audio_review")).json()
    assert (none["batch"], none["total_pending"]) == ([], 0)
    assert (await video_app.api.get("/api/v1/checkpoints/batch?type=upload")).status_code == 422


async def test_two_concurrent_reviewers_do_not_claim_the_same_rows(video_app: VideoApp) -> None:
    await video_app.order_until_script_review(TOPIC)
    requested = ["ana", "rui"]
    body = await asyncio.gather(
        *(video_app.api.get(f"/api/v1/checkpoints/batch?reviewer={name}") for name in requested)
    )
    assert sorted(len(one.json()["batch"]) for one in body) == [0, 1]


async def test_a_second_reviewer_gets_the_rows_after_those_of_the_first(video_app: VideoApp) -> None:
    for _ in range(3):
        await video_app.order()
    await video_app.work()
    body = [
        (await video_app.api.get(f"/api/v1/checkpoints/batch?limit=2&reviewer={name}")).json()
        for name in ("ana", "rui")
    ]
    ana, rui = [{row["checkpoint_id"] for row in one["batch"]} for one in body]
    assert (len(ana), len(rui), ana & rui) == (2, 1, set())
    assert body[1]["next"] is None


async def test_a_batch_has_ten_rows_by_default(video_app: VideoApp) -> None:
    for _ in range(11):
        await video_app.order()
    await video_app.work()
    body = (await video_app.api.get("/api/v1/checkpoints/batch")).json()
    assert (len(body["batch"]), body["total_pending"]) == (10, 11)


async def test_each_decision_in_a_batch_has_its_own_outcome(video_app: VideoApp) -> None:
    good, decided, newer, previous = [await video_app.order_until_script_review(TOPIC) for _ in range(4)]
    await video_app.decide(decided, "rejected", notes="não")
    older = await _send_back(video_app, previous)
    unknown = str(uuid4())
    ids = [one["checkpoint_id"] for one in (decided, newer, older, good)]
    body = {
        "checkpoint_ids": [unknown, *ids],
        "notes": "Batch approved",
        "seen": {
            good["checkpoint_id"]: good["revision"],
            newer["checkpoint_id"]: newer["revision"] + 1,
            older["checkpoint_id"]: previous["revision"],
        },
    }
    answer = await video_app.api.post("/api/v1/checkpoints/batch/approve", json=body)
    response_body = {one["checkpoint_id"]: (one["status"], one.get("code")) for one in answer.json()["results"]}
    assert (answer.status_code, answer.json()["approved"]) == (200, 1)
    assert response_body == {
        unknown: ("error", "NOT_FOUND"),
        decided["checkpoint_id"]: ("error", "ALREADY_DECIDED"),
        newer["checkpoint_id"]: ("error", "REVISION_CHANGED"),
        older["checkpoint_id"]: ("error", "REVISION_CHANGED"),
        good["checkpoint_id"]: ("approved", None),
    }
    assert (await video_app.checkpoint(good["checkpoint_id"]))["reviewer_notes"] == "Batch approved"
    assert {(await video_app.checkpoint(one["checkpoint_id"]))["status"] for one in (newer, older)} == {"pending"}


async def test_a_name_alone_is_not_enough_to_decide(video_app: VideoApp) -> None:
    checkpoint = await video_app.order_until_script_review()
    key = await video_app.api.make_key("runs:read", "reviews:write", name="intern")
    fields = {"action": "rejected", "notes": "x", "reviewer": "administrator"}
    path = f"/api/v1/checkpoints/{checkpoint['checkpoint_id']}/decision"
    assert (await video_app.api.post(path, json=fields, key=key)).json()["reviewer"] == "administrator, by key intern"
    review = (await video_app.api.get(f"/api/v1/reviews/{checkpoint['checkpoint_id']}")).json()
    *_, event = await video_app.client.runs.list_events(UUID(checkpoint["video_id"]), kinds=["review"])
    assert {review["decided_by"], event.data["by"]} == {"administrator, by key intern"}


async def test_a_batch_is_decided_by_its_named_reviewer(video_app: VideoApp) -> None:
    checkpoint = await video_app.order_until_script_review()
    body = {"checkpoint_ids": [checkpoint["checkpoint_id"]], "reviewer": "ana"}
    await video_app.api.post("/api/v1/checkpoints/batch/approve", json=body)
    assert (await video_app.checkpoint(checkpoint["checkpoint_id"]))["reviewer"] == "ana, by key test"


async def test_a_cancelled_video_is_shown_as_cancelled(video_app: VideoApp) -> None:
    video = await video_app.order()
    await video_app.client.runs.cancel(await _id(video_app, video))
    shown = await video_app.show(video)
    assert (shown["stage"], shown["error_message"]) == ("cancelled", "Cancelled")


async def test_reviews_of_other_pipelines_are_not_checkpoints(database: Database, tmp_path: Path) -> None:
    await empty_database(database)
    other = Pipeline("other")

    @other.step
    def draft() -> str:
        return "x"

    other.review("good_draft", of=draft)
    app = make_app(make_small_services(tmp_path))
    app = App("videos", pipelines=[longform, other], resources=app.resources, routes=app.routes)
    async with an_api(database, application=app) as api:
        await api.sandbox.run(other)
        (review,) = await api.client.reviews.list()
        path = f"/api/v1/checkpoints/{review.id}"
        shown, decided = await api.get(path), await api.post(f"{path}/decision", json={"action": "approved"})
        paged = await api.get(f"/api/v1/checkpoints/batch?after={review.id}")
        many = await api.post("/api/v1/checkpoints/batch/approve", json={"checkpoint_ids": [str(review.id)]})
        assert [answer.status_code for answer in (shown, decided, paged)] == [404] * 3
        assert many.json()["results"][0]["code"] == "NOT_FOUND"
        assert (await api.client.reviews.get(review.id)).is_open


async def test_a_batch_with_an_impossible_revision_is_rejected(video_app: VideoApp) -> None:
    body = {"checkpoint_ids": [str(uuid4())], "seen": {str(uuid4()): 10**12}}
    assert (await video_app.api.post("/api/v1/checkpoints/batch/approve", json=body)).status_code == 422


def test_a_file_url_can_contain_any_name() -> None:
    file = File(file="0" * 64, size=1, media_type="video/mp4", name="a b#1?.mp4")
    assert file_url("broll", uuid4(), file).endswith("/a%20b%231%3F.mp4")


async def test_a_batch_repeated_under_one_key_gets_the_same_answer(video_app: VideoApp) -> None:
    ids = [(await video_app.order_until_script_review(TOPIC))["checkpoint_id"] for _ in range(2)]
    first, again = [
        await video_app.api.post(
            "/api/v1/checkpoints/batch/approve", json={"checkpoint_ids": ids}, headers={"Idempotency-Key": "lote-1"}
        )
        for _ in range(2)
    ]
    assert first.json()["approved"] == 2
    assert again.json() == first.json()
    without = await video_app.api.post("/api/v1/checkpoints/batch/approve", json={"checkpoint_ids": ids})
    assert without.json()["approved"] == 0


async def test_a_key_of_one_channel_sees_nothing_of_another(video_app: VideoApp) -> None:
    checkpoint = await video_app.order_until_script_review()
    ours, theirs = f"/api/v1/videos/{checkpoint['video_id']}", f"/api/v1/checkpoints/{checkpoint['checkpoint_id']}"
    key = await video_app.api.make_key("runs:read", "runs:write", "reviews:write", tenant="viagens")
    for path in (ours, theirs, "/api/v1/channels/financas"):
        assert (await video_app.api.get(path, key=key)).status_code == 404
    decision = await video_app.api.post(f"{theirs}/decision", key=key, json={"action": "approved"})
    order = await video_app.api.post("/api/v1/videos", key=key, json={"topic": TOPIC, "channel": "financas"})
    channel = await video_app.api.call("PUT", "/api/v1/channels/financas", key=key, json={})
    assert {decision.status_code, order.status_code, channel.status_code} == {404}
    many = await video_app.api.post(
        "/api/v1/checkpoints/batch/approve", key=key, json={"checkpoint_ids": [checkpoint["checkpoint_id"]]}
    )
    assert many.json()["results"][0]["code"] == "NOT_FOUND"
    listed = (await video_app.api.get("/api/v1/videos?channel=financas", key=key)).json()
    batch = (await video_app.api.get("/api/v1/checkpoints/batch", key=key)).json()
    assert (listed["videos"], batch["batch"], batch["total_pending"]) == ([], [], 0)
    assert (await video_app.checkpoint(checkpoint["checkpoint_id"]))["status"] == "pending"


async def test_a_read_only_key_cannot_claim_checkpoints(video_app: VideoApp) -> None:
    reader = await video_app.api.make_key("runs:read")
    assert (await video_app.api.get("/api/v1/checkpoints/batch", key=reader)).status_code == 200
    assert (await video_app.api.get("/api/v1/checkpoints/batch?reviewer=ana", key=reader)).status_code == 403


async def _id(video_app: VideoApp, video: str) -> Any:
    (found,) = [run.id for run in await video_app.client.runs.list() if str(run.id) == video]
    return found
