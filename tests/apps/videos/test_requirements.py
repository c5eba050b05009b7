"""Requirements of the video specification that no other test covers, without rendering."""

from __future__ import annotations

import asyncio
import os
import re
import signal
import sys
from collections.abc import AsyncIterator, Sequence
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit
from uuid import UUID

import asyncpg
import pytest

from retoma import GiveUp, Pipeline, Retry, exponential
from retoma.errors import DefinitionError
from retoma.states import RUN_TRANSITIONS, RunState
from retoma.store import workers
from retoma.store.database import Database
from retoma.testing import NOON
from retoma_apps.providers.ffmpeg import probe
from retoma_apps.providers.footage import FoundClip, relevance
from retoma_apps.providers.youtube import LocalChannel
from retoma_apps.videos.models import Assembly, Broll, Fact, Narration, Scene, Script, Source
from retoma_apps.videos.operations.checkpoints import script_data
from retoma_apps.videos.pipeline import longform
from retoma_apps.videos.services import Services
from retoma_apps.videos.steps import footage, narration
from retoma_apps.videos.steps.footage import assemble_film
from retoma_apps.videos.steps.footage import search_footage as searched_in_the_studio
from retoma_apps.videos.steps.writing.bundled import BundledWriter
from retoma_apps.videos.steps.writing.port import WritingRequest
from retoma_apps.videos.steps.writing.quality import readability
from tests.apps.videos.fast_video_app import (
    REVIEWS,
    FailingWriter,
    FastVideoApp,
    fake_search,
    record_calls,
    running_fast_video_app,
)
from tests.apps.videos.media.material import clip, tone
from tests.apps.videos.pages.test_reviews import text_of
from tests.apps.videos.pages.video_pages import running_video_pages
from tests.apps.videos.small_services import AnyTopicWriter
from tests.apps.videos.test_definition import STEPS
from tests.apps.videos.video_app import TOPIC, running_video_app
from tests.conftest import empty_database

LATER = "2031-02-04T12:00:00Z"
MINUTE = timedelta(minutes=1)


@pytest.fixture
async def video_app(database: Database, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> AsyncIterator[FastVideoApp]:
    await empty_database(database)
    async with running_fast_video_app(database, tmp_path, monkeypatch) as made:
        yield made


@pytest.mark.parametrize("step", ["subtitle_gen", "knowledge_store", "analytics_init"])
def test_a_step_outside_the_table_has_the_pipelines_retries_and_an_invalid_policy_is_rejected(step: str) -> None:
    assert delays_of(longform.steps[step].policy.retry) == [5, 5]
    with pytest.raises(DefinitionError, match="retry="):
        Pipeline("wrong").step(retry=3)(nothing)  # type: ignore[call-overload]


async def test_a_scheduled_video_is_pending_until_its_start(video_app: FastVideoApp) -> None:
    start = NOON + timedelta(hours=3)
    video = await video_app.order(start_at=start.isoformat())
    await video_app.work()
    waiting = await video_app.show(video)
    assert (waiting["status"], waiting["stage"], waiting["steps_done"]) == ("pending", "draft", [])
    assert waiting["start_at"] == start.isoformat()
    await video_app.api.sandbox.clock.set(start)
    await video_app.work()
    assert (await video_app.show(video))["checkpoint"]["type"] == "script_review"


async def test_a_repeated_scheduled_order_is_the_same_video_after_its_start(video_app: FastVideoApp) -> None:
    order = {"topic": TOPIC, "channel": "financas", "start_at": (NOON + MINUTE).isoformat()}
    first = await video_app.api.post("/api/v1/videos", json=order, headers={"Idempotency-Key": "k"})
    await video_app.api.sandbox.clock.set(NOON + 2 * MINUTE)
    again = await video_app.api.post("/api/v1/videos", json=order, headers={"Idempotency-Key": "k"})
    assert (again.status_code, again.json()["id"]) == (202, first.json()["id"])


async def test_the_analytics_record_is_shown_once_the_video_is_uploaded(video_app: FastVideoApp) -> None:
    checkpoint = await video_app.order_until("final_review")
    assert (await video_app.show(checkpoint["video_id"]))["analytics"] is None
    shown = await video_app.finish(checkpoint)
    recorded = shown["analytics"]
    assert (recorded["url"], recorded["title"], recorded["channel"]) == (shown["url"], shown["title"], "financas")
    assert recorded["seconds"] == checkpoint["data"]["duration_seconds"]


def nothing() -> None:
    """A step that is valid except for its options."""


def delays_of(retry: Retry) -> list[float]:
    return [retry.delay(number, 0.5).total_seconds() for number in range(1, retry.retries + 1)]


@pytest.mark.parametrize("random", [0.0, 0.5, 0.999])
def test_an_exponential_delay_doubles_from_its_base_to_its_cap_with_ten_percent_jitter(random: float) -> None:
    retry = Retry(9, backoff=exponential(60, cap=1000))
    for number in range(1, 10):
        series = min(1000, 60 * 2 ** (number - 1))
        assert retry.delay(number, random).total_seconds() == pytest.approx(series * (0.9 + 0.2 * random))


STAGES = {
    "knowledge_query": "draft",
    "research": "researching",
    "script_generation": "researching",
    "script_review": "scripted",
    "audio_generation": "producing",
    "audio_review": "producing",
    "broll_search": "producing",
    "broll_review": "producing",
    "video_assembly": "assembling",
    "subtitle_gen": "assembling",
    "final_review": "ready",
    "upload": "ready",
    "knowledge_store": "uploaded",
    "analytics_init": "uploaded",
    "publication": "uploaded",
}


async def test_a_video_advances_step_by_step_and_shows_its_stage_and_status(video_app: FastVideoApp) -> None:
    """Step by step: all earlier steps are done, and the video is completed only when nothing is left.

    Only thumbnails do not wait for the step before: they are generated in parallel with the film.
    """
    video = await video_app.order()
    parallel = {"thumbnail_gen"}
    steps = [step for step in longform.steps if step not in parallel]
    for number, step in enumerate(steps):
        shown = await video_app.show(video)
        assert shown["current_step"] == step
        assert [each for each in shown["steps_done"] if each not in parallel] == steps[:number]
        expected = parallel if number >= steps.index("video_assembly") else set()
        assert await video_app.list_started_steps(video) == {*steps[: number + 1], *expected}
        assert shown["status"] == ("paused" if step in REVIEWS else "running")
        assert shown["stage"] == STAGES[step]
        if step in REVIEWS:
            assert shown["checkpoint"]["type"] == step
            await video_app.approve(await video_app.checkpoint(shown["checkpoint"]["id"]))
            assert (await video_app.show(video))["status"] == "running"
        await video_app.work_once()
    ended = await video_app.show(video)
    assert (ended["status"], ended["stage"], ended["current_step"]) == ("completed", "published", None)


async def test_a_video_is_researching_from_its_first_query_until_its_script_exists(video_app: FastVideoApp) -> None:
    video = await video_app.order()
    seen = []
    async with video_app.api.sandbox.manual_worker() as worker:
        for _ in range(3):
            claims = await worker.claim()
            seen.append((claims[0].step, (await video_app.show(video))["stage"]))
            await worker.record_outcomes(await worker.attempt(claims))
    assert seen == [(step, "researching") for step in ("knowledge_query", "research", "script_generation")]
    assert (await video_app.show(video))["stage"] == "scripted"


async def test_an_order_may_specify_channel_language_and_time(video_app: FastVideoApp) -> None:
    video = await video_app.order(channel="news", language="en", scheduled_for=LATER)
    run = await video_app.run_of(video)
    assert (run.state, run.tenant, run.input["language"]) == (RunState.RUNNING, "news", "en")
    assert datetime.fromisoformat(run.input["scheduled_for"]) == datetime(2031, 2, 4, 12, tzinfo=UTC)


async def test_a_list_shows_each_video_as_the_single_route_does(video_app: FastVideoApp) -> None:
    await video_app.order_until_script_review()
    await video_app.order()
    listed = (await video_app.api.get("/api/v1/videos")).json()["videos"]
    assert [(one["stage"], one["status"], one["current_step"]) for one in listed] == [
        ("draft", "running", "knowledge_query"),
        ("scripted", "paused", "script_review"),
    ]
    assert listed == [await video_app.show(one["id"]) for one in listed]


async def test_a_repeated_order_is_the_same_video_and_another_key_or_none_creates_a_new_one(
    video_app: FastVideoApp,
) -> None:
    body = {"topic": TOPIC, "channel": "financas"}

    async def ordered(**headers: str) -> dict[str, Any]:
        return dict((await video_app.api.post("/api/v1/videos", json=body, headers=headers)).json())

    key, other = {"Idempotency-Key": "a"}, {"Idempotency-Key": "b"}
    first = await ordered(**key)
    await video_app.work()
    again = await ordered(**key)
    assert (again["id"], again["status"], again["current_step"]) == (first["id"], "paused", "script_review")
    assert len({first["id"], (await ordered(**other))["id"], (await ordered())["id"]}) == 3


async def test_state_attempts_and_checkpoints_are_recovered_from_the_database_alone(
    database: Database, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    await empty_database(database)
    async with running_fast_video_app(database, tmp_path, monkeypatch) as before:
        waiting = await before.order_until_script_review()
        before.failures["research"] = [OSError("down")] * 2
        retried = await before.order()
        await before.api.sandbox.work(advance_clock=False)
        seen = [await before.show(video) for video in (waiting["video_id"], retried)]
        jobs = await before.client.runs.list_jobs(UUID(retried))
    assert {job.step: job.attempt for job in jobs if job.attempt} == {"knowledge_query": 1, "research": 1}
    async with running_fast_video_app(database, tmp_path, monkeypatch) as after:
        assert [await after.show(video) for video in (waiting["video_id"], retried)] == seen
        assert await after.client.runs.list_jobs(UUID(retried)) == jobs
        assert await after.checkpoint(waiting["checkpoint_id"]) == waiting
        assert (await after.finish(waiting))["status"] == "completed"


async def test_a_video_is_running_while_a_step_is_ready_running_or_waiting_for_its_retry(
    video_app: FastVideoApp,
) -> None:
    video_app.failures["research"] = [OSError("down")]
    video = await video_app.order()
    await video_app.work_once()
    async with video_app.api.sandbox.manual_worker() as worker:
        assert (await video_app.show(video))["status"] == "running"
        claims = await worker.claim()
        assert [(await video_app.show(video))["status"], claims[0].step] == ["running", "research"]
        await worker.record_outcomes(await worker.attempt(claims))
        assert [(await video_app.show(video))["status"], await worker.claim()] == ["running", []]


async def test_a_step_waiting_for_its_retry_blocks_its_dependents_and_runs_once_at_a_time(
    video_app: FastVideoApp,
) -> None:
    video_app.failures["research"] = [OSError("down")]
    video = await video_app.order()
    await video_app.work()
    assert await video_app.list_started_steps(video) == {"knowledge_query", "research"}
    await video_app.api.sandbox.clock.advance(timedelta(seconds=6))
    await workers.release_due_jobs(video_app.api.sandbox.database, limit=100)
    async with video_app.api.sandbox.manual_worker() as one, video_app.api.sandbox.manual_worker() as other:
        claims = [*await one.claim(5), *await other.claim(5)]
        assert [(claim.step, claim.attempt) for claim in claims] == [("research", 2)]
        assert (await video_app.show(video))["steps_done"] == ["knowledge_query"]


async def test_resumed_revised_and_retried_are_timed_events_and_not_states(
    video_app: FastVideoApp,
) -> None:
    video_app.failures["research"] = [OSError("down")]
    video = await video_app.order()
    await video_app.work()
    for action in ("revision_requested", "approved"):
        await video_app.api.sandbox.clock.advance(MINUTE)
        checkpoint = await video_app.work_until_review(video)
        await video_app.api.sandbox.clock.advance(MINUTE)
        await video_app.decide(checkpoint, action, notes="mais curto")
        shown = await video_app.show(video)
        assert (shown["status"], shown["revision"]) == ("running", 2)
    events = await video_app.client.runs.list_events(UUID(video))
    recorded_events = [event for event in events if event.kind in ("retry", "review")]
    assert [(event.kind, event.step, event.data.get("what"), event.at) for event in recorded_events] == [
        ("retry", "research", None, NOON),
        ("review", "script_review", "opened", NOON + MINUTE),
        ("review", "script_review", "sent_back", NOON + 2 * MINUTE),
        ("review", "script_review", "opened", NOON + 3 * MINUTE),
        ("review", "script_review", "approved", NOON + 4 * MINUTE),
    ]
    assert [event.at for event in events] == sorted(event.at for event in events)
    assert {"resumed", "revision", "retrying"}.isdisjoint(RunState)


async def test_the_end_of_each_step_is_recorded_with_its_name_and_time(video_app: FastVideoApp) -> None:
    checkpoint = await video_app.order_until_script_review()
    results = await video_app.client.runs.list_events(UUID(checkpoint["video_id"]), kinds=["result"])
    now = await video_app.api.sandbox.clock.now()
    assert [(event.step, event.at) for event in results] == [(step, now) for step in STEPS[:3]]


@pytest.mark.parametrize(("moment", "begun"), [("ordered", 0), ("held", 1), ("waiting", 2), ("asked", 3)])
async def test_a_video_can_be_cancelled_at_any_time_before_its_end(
    video_app: FastVideoApp, moment: str, begun: int
) -> None:
    video_app.failures["research"] = [OSError("down")] if moment == "waiting" else []
    video = await video_app.order()
    if moment in ("waiting", "asked"):
        await video_app.work()
    async with video_app.api.sandbox.manual_worker() as worker:
        held = await worker.claim() if moment == "held" else []
        await video_app.api.post(f"/api/v1/runs/{video}/cancel")
        await worker.record_outcomes(await worker.attempt(held))
    await video_app.api.sandbox.work()
    shown = await video_app.show(video)
    assert (shown["status"], shown["stage"]) == ("cancelled", "cancelled")
    assert await video_app.list_started_steps(video) == set(STEPS[:begun])


async def test_a_failed_video_continues_only_when_somebody_resumes_it_and_can_then_complete(
    video_app: FastVideoApp,
) -> None:
    video_app.failures["research"] = [GiveUp("nothing known", "NOTHING")]
    video = await video_app.order()
    await video_app.api.sandbox.work()
    await video_app.api.sandbox.clock.advance(timedelta(days=1))
    assert await video_app.api.sandbox.work() == 0
    assert (await video_app.show(video))["status"] == "failed"
    assert RunState.RUNNING in RUN_TRANSITIONS[RunState.FAILED]
    await video_app.client.runs.resume(UUID(video), by="ana")
    assert (await video_app.show(video))["status"] == "running"
    assert (await video_app.finish(await video_app.work_until_review(video)))["status"] == "completed"


async def test_late_results_do_not_change_a_video_that_has_ended(video_app: FastVideoApp) -> None:
    open_review = await video_app.order_until_script_review()
    await video_app.decide(open_review, "rejected", notes="não")
    video_app.failures["research"] = [OSError("down")]
    video = await video_app.order(scheduled_for=LATER)
    await video_app.work_once()
    async with video_app.api.sandbox.manual_worker() as worker:
        late = await worker.attempt(await worker.claim())
        await video_app.client.runs.cancel(UUID(video))
        await video_app.api.sandbox.clock.advance(timedelta(minutes=1))
        await video_app.api.sandbox.run_watchdog()
        await worker.record_outcomes(late)
    await video_app.api.sandbox.work()
    assert (await video_app.decide(open_review, "approved")).status_code == 409
    states = [(await video_app.show(one))["status"] for one in (open_review["video_id"], video)]
    assert states == ["rejected", "cancelled"]
    assert await video_app.api.sandbox.work() == 0


@pytest.mark.parametrize(
    ("error", "attempts"),
    [(ConnectionError("cut"), 4), (KeyError("bug"), 4), (SystemExit(1), 4), (GiveUp("never", "NEVER"), 1)],
)
async def test_temporary_errors_are_retried_permanent_ones_are_not_and_no_video_runs_for_ever(
    video_app: FastVideoApp, error: BaseException, attempts: int
) -> None:
    video_app.failures["research"] = [error] * 9
    video = await video_app.order()
    await video_app.api.sandbox.work()
    assert (await video_app.show(video))["status"] == "failed"
    jobs = {job.step: job.attempt for job in await video_app.client.runs.list_jobs(UUID(video))}
    assert jobs["research"] == attempts
    assert "script_generation" not in jobs


async def test_a_paid_writer_call_is_not_repeated_after_a_worker_died(
    video_app: FastVideoApp, monkeypatch: pytest.MonkeyPatch
) -> None:
    requests = list[str]()
    for name in ("research", "script"):
        monkeypatch.setattr(FailingWriter, name, record_calls(requests, name, getattr(FailingWriter, name)))
    video = await video_app.order()
    await video_app.work_once()
    for _ in range(2):
        async with video_app.api.sandbox.manual_worker() as worker:
            await worker.attempt(await worker.claim())  # and its outcome is never reported
        await video_app.work_once()
    assert (await video_app.show(video))["current_step"] == "script_review"
    assert requests == ["research", "script"]


async def test_retries_are_counted_per_step_and_revision(video_app: FastVideoApp) -> None:
    video_app.failures["research"] = [OSError("down")] * 3
    video_app.failures["script_generation"] = [OSError("down")] * 2
    video = await video_app.order()
    await video_app.api.sandbox.work()
    video_app.failures["script_generation"] = [OSError("down")] * 2
    await video_app.decide(await video_app.work_until_review(video), "revision_requested", notes="mais curto")
    await video_app.api.sandbox.work()
    assert (await video_app.work_until_review(video))["checkpoint_type"] == "script_review"


async def test_facts_found_by_one_video_are_the_first_known_to_the_next(video_app: FastVideoApp) -> None:
    first = await video_app.finish(await video_app.order_until_script_review())
    second = await video_app.order_until_script_review()
    results = await video_app.client.runs.get_results(UUID(first["id"]))
    known = await video_app.client.runs.get_results(UUID(second["video_id"]))
    assert results["knowledge_query"]["facts"] == []
    assert all(fact["source"]["name"] for fact in results["research"]["facts"])
    assert texts(known["knowledge_query"]["facts"]) == texts(results["research"]["facts"]) != set()


def texts(facts: list[dict[str, Any]]) -> set[str]:
    return {fact["text"] for fact in facts}


async def find_three_facts(self: BundledWriter, request: WritingRequest, **options: Any) -> list[Fact]:
    return (await BundledWriter.research(self, request, **options))[:3]


async def publish_with_three_facts(video_app: FastVideoApp, monkeypatch: pytest.MonkeyPatch) -> None:
    with monkeypatch.context() as patched:
        patched.setattr(AnyTopicWriter, "research", find_three_facts)
        await video_app.finish(await video_app.order_until_script_review())


async def test_research_adds_only_new_facts(video_app: FastVideoApp, monkeypatch: pytest.MonkeyPatch) -> None:
    await publish_with_three_facts(video_app, monkeypatch)
    again = await video_app.order_until_script_review()
    results = await video_app.client.runs.get_results(UUID(again["video_id"]))
    known, found = results["knowledge_query"]["facts"], results["research"]["facts"]
    assert found[: len(known)] == known
    assert len(texts(found)) == len(found) > len(known) == 3
    assert all(fact["source"]["name"] and 0 <= fact["source"]["confidence"] <= 1 for fact in found)


async def test_all_feedback_on_a_script_applies_wherever_it_is_sent_back_to(video_app: FastVideoApp) -> None:
    await video_app.client.tenants.set_profile("financas", {"seconds": 90})
    first = await video_app.order_until_script_review()
    run = UUID(first["video_id"])
    remarks = [{"text": "fale do Banco Central", "at": 61.5}]
    for value in ({"notes": "mais curto"}, {"comments": remarks, "rewind_to": "research"}, {"notes": "mais longo"}):
        checkpoint = await video_app.work_until_review(first["video_id"])
        assert (await video_app.decide(checkpoint, "revision_requested", **value)).status_code == 200
    last = (await video_app.work_until_review(first["video_id"]))["data"]
    results = await video_app.client.runs.get_results(run)
    assert results["research"]["feedback_history"] == ["1:01.5 fale do Banco Central"]
    assert results["script_generation"]["feedback_history"] == [
        "mais curto",
        "1:01.5 fale do Banco Central",
        "mais longo",
    ]
    assert results["script_generation"]["seconds"] == 88
    assert "o Banco Central define" in last["script_full"]
    assert "o Banco Central define" not in first["data"]["script_full"]


async def test_each_step_uses_the_approved_result_and_not_the_generated_one(video_app: FastVideoApp) -> None:
    scripted = await video_app.order_until_script_review()
    run = UUID(scripted["video_id"])
    script = (await video_app.client.runs.get_results(run))["script_generation"]
    await video_app.approve(scripted, value=script | {"scenes": [{"text": "Minha cena.", "visual": "um gato"}]})
    spoken = await video_app.work_until_review(scripted["video_id"])
    assert spoken["data"]["script_text"] == "Minha cena."
    narration = (await video_app.client.runs.get_results(run))["audio_generation"]
    assert [line["text"] for line in narration["lines"]] == ["Minha cena."]
    await video_app.approve(spoken, value=narration | {"seconds": 7.5})
    filmed = await video_app.work_until_review(scripted["video_id"])
    assert [clip["query_used"] for clip in filmed["data"]["clips"]] == ["um gato"]
    assert filmed["data"]["audio_duration"] == 7.5
    broll = (await video_app.client.runs.get_results(run))["broll_search"]
    await video_app.approve(filmed, value=broll | {"clips": [broll["clips"][0] | {"query": "outro gato"}]})
    final = await video_app.work_until_review(scripted["video_id"])
    film = (await video_app.api.get(final["data"]["video_preview_url"])).content.decode()
    assert film == f"{narration['audio']['file']} ['outro gato']"


async def test_subtitles_have_the_timings_of_the_narration(video_app: FastVideoApp) -> None:
    final = await video_app.order_until("final_review")
    results = await video_app.client.runs.get_results(UUID(final["video_id"]))
    path = await video_app.services.files.get_path(
        await file_of(video_app, final, results["subtitle_gen"]["vtt"]["file"])
    )
    timings = [line.split(" --> ") for line in path.read_text().splitlines() if "-->" in line]
    lines = results["audio_review"]["lines"]
    assert [[seconds(at) for at in pair] for pair in timings] == [[line["start"], line["end"]] for line in lines]


async def file_of(video_app: FastVideoApp, checkpoint: dict[str, Any], digest: str) -> Any:
    return await video_app.client.files.get(UUID(checkpoint["video_id"]), digest)


def seconds(clock: str) -> float:
    hours, minutes, rest = clock.split(":")
    return int(hours) * 3600 + int(minutes) * 60 + float(rest)


async def test_a_rerun_script_reruns_its_dependents_and_the_previous_one_stays_readable(
    video_app: FastVideoApp, monkeypatch: pytest.MonkeyPatch
) -> None:
    filmed = await video_app.order_until("broll_review")
    run = UUID(filmed["video_id"])
    monkeypatch.setattr(FailingWriter, "script", another_script)
    await video_app.client.runs.rerun(run, "script_generation", by="ana")
    again = await video_app.work_until_review(filmed["video_id"])
    assert again["checkpoint_type"] == "script_review"
    assert (await video_app.decide(filmed, "approved")).status_code == 409
    await video_app.approve(again)
    spoken = await video_app.work_until_review(filmed["video_id"])
    assert (spoken["checkpoint_type"], spoken["data"]["script_text"]) == ("audio_review", "Outra coisa.")
    await video_app.approve(spoken)
    clips = (await video_app.work_until_review(filmed["video_id"]))["data"]["clips"]
    assert [clip["query_used"] for clip in clips] == ["um rio"]
    new, old = await video_app.client.runs.get_step_history(run, "audio_generation")
    assert [line["text"] for line in new.output["lines"]] == ["Outra coisa."] != old.output["lines"]


async def test_a_previous_narration_checkpoint_shows_the_script_it_was_based_on(
    video_app: FastVideoApp, monkeypatch: pytest.MonkeyPatch
) -> None:
    spoken = await video_app.order_until("audio_review")
    await video_app.approve(spoken)
    monkeypatch.setattr(FailingWriter, "script", another_script)
    await video_app.client.runs.rerun(UUID(spoken["video_id"]), "script_generation", by="ana")
    again = await video_app.work_until_review(spoken["video_id"])
    assert (await video_app.checkpoint(spoken["checkpoint_id"]))["data"] == spoken["data"]
    await video_app.approve(again)
    assert (await video_app.work_until_review(spoken["video_id"]))["data"]["script_text"] == "Outra coisa."
    assert (await video_app.checkpoint(spoken["checkpoint_id"]))["data"] == spoken["data"]


async def another_script(*_: Any, **__: Any) -> Any:
    return Script(title="Outro", scenes=[Scene(text="Outra coisa.", visual="um rio")])


async def test_a_video_waiting_for_a_person_waits_without_limit_and_for_nothing_else(video_app: FastVideoApp) -> None:
    checkpoint = await video_app.order_until_script_review()
    await video_app.api.sandbox.clock.advance(timedelta(days=400))
    assert await video_app.api.sandbox.work() == 0
    shown = await video_app.show(checkpoint["video_id"])
    assert (shown["status"], shown["checkpoint"]["id"]) == ("paused", checkpoint["checkpoint_id"])


@pytest.mark.parametrize("review", REVIEWS)
async def test_an_overdue_checkpoint_sends_a_reminder_and_is_then_assigned_to_the_editor(
    video_app: FastVideoApp, review: str
) -> None:
    checkpoint = await video_app.order_until(review)
    due = datetime.fromisoformat(checkpoint["due_at"])
    assert due - datetime.fromisoformat(checkpoint["opened_at"]) == timedelta(hours=2)
    reported = []
    for late in (-1, 1, 121):
        await video_app.api.sandbox.clock.set(due + timedelta(minutes=late))
        await video_app.work()
        events = await video_app.client.runs.list_events(UUID(checkpoint["video_id"]), kinds=["review"])
        reported.append([event.data["what"] for event in events if event.step == review])
    assert reported == [["opened"], ["opened", "reminded"], ["opened", "reminded", "escalated"]]
    assert (await video_app.client.reviews.get(UUID(checkpoint["checkpoint_id"]))).assignee == "editor"


async def test_each_video_step_and_revision_has_one_checkpoint(video_app: FastVideoApp) -> None:
    checkpoint = await video_app.order_until_script_review()
    await video_app.decide(checkpoint, "revision_requested", notes="mais curto")
    again = await video_app.work_until_review(checkpoint["video_id"])
    assert again["checkpoint_id"] != checkpoint["checkpoint_id"]
    columns = "run, step, item, revision"
    async with video_app.api.sandbox.database.connection() as connection:
        counted = await connection.fetch(f"select {columns}, count(*) from retoma.reviews group by {columns}")
        assert [row["count"] for row in counted] == [1, 1]
        with pytest.raises(asyncpg.UniqueViolationError):
            await connection.execute("update retoma.reviews set revision = 1")


async def test_a_checkpoint_shows_its_type_data_status_video_and_decision(video_app: FastVideoApp) -> None:
    checkpoint = await video_app.order_until_script_review()
    assert (checkpoint["checkpoint_type"], checkpoint["status"]) == ("script_review", "pending")
    assert (checkpoint["reviewer_notes"], checkpoint["reviewed_at"]) == (None, None)
    assert checkpoint["data"]
    assert (await video_app.show(checkpoint["video_id"]))["checkpoint"]["id"] == checkpoint["checkpoint_id"]
    await video_app.decide(checkpoint, "approved", notes="bom")
    decided = await video_app.checkpoint(checkpoint["checkpoint_id"])
    assert (decided["status"], decided["reviewer_notes"]) == ("approved", "bom")
    assert decided["reviewed_at"]


@pytest.mark.parametrize("action", ["approved", "rejected", "revision_requested"])
async def test_every_kind_of_decision_is_recorded_with_its_time_person_and_source(
    video_app: FastVideoApp, action: str
) -> None:
    checkpoint = await video_app.order_until_script_review()
    await video_app.api.sandbox.clock.set(datetime(2031, 5, 6, 7, 8, 9, tzinfo=UTC))
    body = (await video_app.decide(checkpoint, action, notes="mais curto", reviewer="ana")).json()
    assert datetime.fromisoformat(body["reviewed_at"]) == datetime(2031, 5, 6, 7, 8, 9, tzinfo=UTC)
    assert datetime.fromisoformat(body["reviewed_at"]).utcoffset() == timedelta(0)
    _, decided = await video_app.client.runs.list_events(UUID(checkpoint["video_id"]), kinds=["review"])
    assert (decided.data["by"], decided.data["via"], decided.data["notes"]) == ("ana, by key test", "api", "mais curto")
    assert decided.at == datetime(2031, 5, 6, 7, 8, 9, tzinfo=UTC)
    async with video_app.api.sandbox.database.connection() as connection:
        with pytest.raises(asyncpg.CheckViolationError, match="events are immutable"):
            await connection.execute("update retoma.events set data = '{}' where id = $1", decided.id)


DECIDER = """
import asyncio, os, signal, sys
from uuid import UUID
from retoma import App, Client
from retoma.reviews import Decision
from retoma.store.database import Database
from retoma_apps.videos.pipeline import longform

async def main():
    resources = {"services": None, "writer": None, "images": None}
    client = Client(App("videos", pipelines=[longform], resources=resources), Database(sys.argv[1], None))
    await client.reviews.decide(UUID(sys.argv[2]), Decision("approve", by="ana", notes="bom"))
    os.kill(os.getpid(), signal.SIGKILL)

asyncio.run(main())
"""


async def test_a_decision_survives_the_process_that_recorded_it(video_app: FastVideoApp) -> None:
    checkpoint = await video_app.order_until_script_review()
    url, review = video_app.api.sandbox.database.url, checkpoint["checkpoint_id"]
    process = await asyncio.create_subprocess_exec(sys.executable, "-c", DECIDER, url, review, env=dict(os.environ))
    assert await process.wait() == -signal.SIGKILL
    decided = await video_app.checkpoint(review)
    assert (decided["status"], decided["reviewer"], decided["reviewer_notes"]) == ("approved", "ana", "bom")
    assert (await video_app.work_until_review(checkpoint["video_id"]))["checkpoint_type"] == "audio_review"


NOTES = {
    "research": "fale das debêntures",
    "script_generation": "mais longo",
    "audio_generation": "mais rápido",
    "broll_search": "outros",
    "video_assembly": "sem legendas",
    "thumbnail_gen": "outras cores",
}
"""The feedback that each step can follow, offline too."""


@pytest.mark.parametrize(
    ("review", "targets"),
    [
        ("script_review", {"script_generation", "research"}),
        ("audio_review", {"audio_generation"}),
        ("broll_review", {"broll_search"}),
        (
            "final_review",
            {"script_generation", "audio_generation", "broll_search", "video_assembly", "thumbnail_gen"},
        ),
    ],
)
async def test_a_checkpoint_can_be_sent_back_to_its_own_steps_only(
    video_app: FastVideoApp, review: str, targets: set[str]
) -> None:
    checkpoint = await video_app.order_until(review)
    assert set(checkpoint["can_go_back_to"]) == targets
    for step in set(STEPS) - targets:
        wrong = await video_app.decide(checkpoint, "revision_requested", notes="x", rewind_to=step)
        assert wrong.status_code == 422, step
    for step in sorted(targets):
        earlier = STEPS[: STEPS.index(step)]
        before = await revisions_of(video_app, checkpoint["video_id"], earlier)
        sent = await video_app.decide(checkpoint, "revision_requested", notes=NOTES[step], rewind_to=step)
        assert (sent.status_code, (await video_app.show(checkpoint["video_id"]))["current_step"]) == (200, step)
        checkpoint = await video_app.work_until_review(checkpoint["video_id"])
        while checkpoint["checkpoint_type"] != review:  # an earlier review is asked again on the way
            assert (await video_app.decide(checkpoint, "approved")).status_code == 200
            checkpoint = await video_app.work_until_review(checkpoint["video_id"])
        made = (await video_app.client.runs.get_step_history(UUID(checkpoint["video_id"]), step))[0]
        assert (made.revision, made.reused_from) == (checkpoint["revision"], None)
        assert made.feedback["notes"] == NOTES[step]
        assert await revisions_of(video_app, checkpoint["video_id"], earlier) == before


@pytest.mark.parametrize("action", ["approved", "rejected"])
async def test_a_script_can_be_sent_back_ten_times_and_must_then_be_reassigned_approved_or_rejected(
    video_app: FastVideoApp, action: str
) -> None:
    checkpoint = await video_app.order_until_script_review()
    for _ in range(10):
        assert (await video_app.decide(checkpoint, "revision_requested", notes="mais longo")).status_code == 200
        checkpoint = await video_app.work_until_review(checkpoint["video_id"])
    once_more = await video_app.decide(checkpoint, "revision_requested", notes="mais longo")
    assert once_more.status_code == 409
    assert "which is its limit" in once_more.json()["detail"]
    assigned = await video_app.client.reviews.assign(UUID(checkpoint["checkpoint_id"]), "rui", by="ana")
    assert (assigned.assignee, assigned.is_open) == ("rui", True)
    assert (await video_app.decide(checkpoint, action, notes="chega")).json()["status"] == action


async def revisions_of(video_app: FastVideoApp, video: str, steps: Sequence[str]) -> dict[str, int]:
    return {step: (await video_app.client.runs.get_step_history(UUID(video), step))[0].revision for step in steps}


async def test_a_reviewers_field_values_reach_the_step(
    video_app: FastVideoApp, monkeypatch: pytest.MonkeyPatch
) -> None:
    messages: list[Any] = []

    async def listening(script: Any, narration: Any, language: str, services: Services, ctx: Any) -> Any:
        messages.append(ctx.feedback)
        return await fake_search(script, narration, language, services, ctx)

    monkeypatch.setattr(footage, "search_footage", listening)
    checkpoint = await video_app.order_until("broll_review")
    body: dict[str, Any] = {"clips": [1, 3], "queries": {"3": "um banco"}, "notes": "outros"}
    for wrong in (
        {"clips": [0]},
        {"clips": "1"},
        {"queries": ["x"]},
        {"queries": {"01": "x"}},
        {"rate": 9},
        {"thumbnail": 4},
    ):
        assert (await video_app.decide(checkpoint, "revision_requested", **body | wrong)).status_code == 422
    assert (await video_app.decide(checkpoint, "revision_requested", **body)).status_code == 200
    await video_app.work_until_review(checkpoint["video_id"])
    assert messages[0] is None
    assert (messages[1].items, messages[1].extra["queries"], messages[1].notes) == (
        ("1", "3"),
        {"3": "um banco"},
        "outros",
    )


STRANGE: dict[str, list[tuple[str, dict[str, Any]]]] = {
    "script_review": [
        ("approved", {"rewind_to": "research"}),
        ("approved", {"title": "Outro"}),
        ("approved", {"comments": [{"text": "aqui", "at": 1}]}),
        ("rejected", {"value": {}}),
        ("revision_requested", {"clips": [1]}),
        ("revision_requested", {"voice": "espeak_en"}),
    ],
    "broll_review": [("approved", {"clips": [1]}), ("revision_requested", {"subtitles": False})],
    "final_review": [
        ("approved", {"thumbnail": 1, "value": {}}),
        ("revision_requested", {"thumbnail_texts": ["Ouro"]}),
        ("revision_requested", {"rewind_to": "thumbnail_gen", "subtitles": False}),
    ],
}
"""By checkpoint, decisions whose last field is not allowed there."""


@pytest.mark.parametrize("review", STRANGE)
async def test_an_unknown_field_in_a_decision_is_named_and_nothing_is_decided(
    video_app: FastVideoApp, review: str
) -> None:
    checkpoint = await video_app.order_until(review)
    for action, value in STRANGE[review]:
        answer = await video_app.decide(checkpoint, action, notes="porque", **value)
        *_, strange = value
        assert (answer.status_code, strange in answer.json()["detail"]) == (422, True), answer.text
    assert (await video_app.checkpoint(checkpoint["checkpoint_id"]))["status"] == "pending"


async def test_a_missing_clip_cannot_be_replaced(video_app: FastVideoApp) -> None:
    checkpoint = await video_app.order_until("broll_review")
    count = checkpoint["data"]["total_clips"]
    for value in ({"clips": [1, count + 1]}, {"queries": {str(count + 1): "um banco"}}):
        answer = await video_app.decide(checkpoint, "revision_requested", **value)
        assert (answer.status_code, f"there are {count}" in answer.json()["detail"]) == (422, True)
    assert (await video_app.decide(checkpoint, "revision_requested", clips=[count])).status_code == 200


async def test_a_narration_keeps_the_requested_voice_and_speed_in_every_rerun(
    database: Database, tmp_path: Path
) -> None:
    await empty_database(database)
    async with running_video_app(database, tmp_path) as video_app:
        scripted = await video_app.order_until_script_review()
        script = (await video_app.client.runs.get_results(UUID(scripted["video_id"])))["script_generation"]
        short, other = (
            script | {"scenes": [{"text": text, "visual": "o sol"}]} for text in ("Bom dia a todos.", "Boa noite.")
        )
        await video_app.decide(scripted, "approved", value=short)
        first = await video_app.work_until_review(scripted["video_id"])
        body = {"notes": "outra voz", "voice": "espeak_pt", "rate": 1.4}
        assert (await video_app.decide(first, "revision_requested", **body)).status_code == 200
        again = await video_app.work_until_review(scripted["video_id"])
        await video_app.client.runs.edit(UUID(scripted["video_id"]), "script_review", other, by="ana")
        edited = await video_app.work_until_review(scripted["video_id"])
    assert edited["data"]["script_text"] == "Boa noite."
    assert (edited["data"]["voice_used"], edited["data"]["rate"]) == ("espeak_pt", 1.4)
    assert (first["data"]["voice_used"] != "espeak_pt", first["data"]["rate"]) == (True, 1.0)
    assert (again["data"]["voice_used"], again["data"]["rate"]) == ("espeak_pt", 1.4)
    assert len({one["data"]["audio_url"].partition("?")[0] for one in (again, first)}) == 2
    assert again["data"]["script_text"] == first["data"]["script_text"]


def script_of(passed: bool) -> Script:
    scenes = [Scene(text="Um.", visual="a"), Scene(text="Dois.", visual="b")]
    sources = [Source(name="Livro")]
    return Script(title="T", scenes=scenes, sources=sources, facts_used=1, seconds=None if passed else 25)


@pytest.mark.parametrize("passed", [True, False])
async def test_a_script_review_has_the_whole_script_and_its_quality_report(
    video_app: FastVideoApp, passed: bool
) -> None:
    data = script_data(await video_app.run_of(await video_app.order()), script_of(passed))
    assert data["script_full"] == "Um.\n\nDois."
    assert data["quality_report"]["passed"] is passed
    assert [issue["code"] for issue in data["quality_report"]["issues"]] == ([] if passed else ["much_too_short"])


@pytest.mark.parametrize(("seconds", "count"), [(25, 4), (120, 14)])
async def test_a_script_review_counts_the_facts_that_the_script_uses(
    video_app: FastVideoApp, seconds: int, count: int
) -> None:
    await video_app.client.tenants.set_profile("financas", {"seconds": seconds})
    checkpoint = await video_app.order_until_script_review()
    results = await video_app.client.runs.get_results(UUID(checkpoint["video_id"]))
    used = set(results["script_generation"]["facts"])
    assert used <= texts(results["research"]["facts"])
    assert checkpoint["data"]["facts_used"] == len(used) == count


async def test_a_script_review_shows_the_share_of_facts_known_before(
    video_app: FastVideoApp, monkeypatch: pytest.MonkeyPatch
) -> None:
    await video_app.client.tenants.set_profile("financas", {"seconds": 120})
    await publish_with_three_facts(video_app, monkeypatch)
    mixed = await video_app.order_until_script_review()
    results = await video_app.client.runs.get_results(UUID(mixed["video_id"]))
    used, known = set(results["script_generation"]["facts"]), texts(results["knowledge_query"]["facts"])
    assert mixed["data"]["knowledge_reuse_rate"] == round(3 / len(used), 2)
    assert used > known
    await video_app.finish(mixed)
    assert (await video_app.order_until_script_review())["data"]["knowledge_reuse_rate"] == 1


@pytest.mark.parametrize(("language", "other"), [("pt-BR", "en"), ("en", "pt-BR")])
async def test_readability_is_computed_for_the_language_of_the_script(
    video_app: FastVideoApp, language: Any, other: Any
) -> None:
    topic = "How coffee is made" if language == "en" else TOPIC
    data = (await video_app.work_until_review(await video_app.order(topic, language=language)))["data"]
    score = data["quality_report"]["readability_score"]
    assert score == readability(data["script_full"], language) != readability(data["script_full"], other)


async def test_a_final_review_shows_the_measured_video_size_full_hd_by_default(
    video_app: FastVideoApp, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """With a real film of two seconds from a small clip."""
    small = clip(tmp_path / "small.mp4", "red")

    async def spoken(script: Script, voice: str, language: str, services: Services, ctx: Any) -> Narration:
        audio = await ctx.save_file(tone(2.0), "narration.wav")
        return Narration(audio=audio, seconds=2.0, voice="tone", lines=[], scene_starts=[0.0] * len(script.scenes))

    async def filmed(script: Script, narration: Narration, language: str, services: Services, ctx: Any) -> Broll:
        made = await fake_search(script, narration, language, services, ctx)
        shot = made.clips[0].model_copy(update={"video": await ctx.save_file(small, "clip.mp4"), "seconds": 2.0})
        return made.model_copy(update={"clips": [shot]})

    async def at_full_size(narration: Narration, broll: Broll, services: Services, ctx: Any) -> Assembly:
        return await assemble_film(narration, broll, replace(services, size=Services.size), ctx)

    for place, name, instead in (
        (narration, "generate_narration", spoken),
        (footage, "search_footage", filmed),
        (footage, "assemble_film", at_full_size),
    ):
        monkeypatch.setattr(place, name, instead)
    final = await video_app.order_until("final_review")
    played = await probe(await video_app.services.files.get_path(await file_of(video_app, final, digest_in(final))))
    assert (final["data"]["resolution"], played.width, played.height) == ("1920x1080", 1920, 1080)


class Stock:
    """Has one clip of less than half a second for any search."""

    name = "stock"
    is_offline = False
    longest_shot = 15.0
    only = FoundClip("one", "stock", "", "", "", "", 0.4, 1920, 1080, ("gato",))

    async def search(self, query: str, *, language: str, seconds: float) -> list[FoundClip]:
        return [self.only]

    async def fetch(self, found: FoundClip, path: Path) -> None:
        await asyncio.to_thread(path.write_bytes, b"film")

    async def fetch_thumbnail(self, found: FoundClip, path: Path) -> None:
        await asyncio.to_thread(path.write_bytes, b"picture")


async def test_a_broll_review_shows_how_well_each_clip_fits_and_how_much_narration_it_covers(
    database: Database, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """With narration of a second for each scene."""
    await empty_database(database)
    async with running_fast_video_app(database, tmp_path, monkeypatch, footage=Stock()) as video_app:
        monkeypatch.setattr(footage, "search_footage", searched_in_the_studio)
        scripted = await video_app.order_until_script_review()
        script = (await video_app.client.runs.get_results(UUID(scripted["video_id"])))["script_generation"]
        scenes = [{"text": "Minha cena.", "visual": visual} for visual in ("um gato", "um rio")]
        await video_app.approve(scripted, value=script | {"scenes": scenes})
        await video_app.approve(await video_app.work_until_review(scripted["video_id"]))
        data = (await video_app.work_until_review(scripted["video_id"]))["data"]
    fitting, other = [clip["relevance_score"] for clip in data["clips"]]
    assert (fitting, other) == (relevance("um gato", Stock.only), relevance("um rio", Stock.only))
    assert 1 > fitting > other > 0
    assert data["coverage_percentage"] == 40


async def test_a_remote_reviewer_opens_the_files_without_a_key(video_app: FastVideoApp) -> None:
    audio_review = await video_app.order_until("audio_review")
    seen = await video_app.order_until("final_review")
    link = audio_review["data"]["audio_url"]
    links = [link, seen["data"]["video_preview_url"], *(one["url"] for one in seen["data"]["thumbnail_variants"])]
    assert {urlsplit(each).netloc for each in [*links, seen["review_url"]]} == {"api.example"}
    assert seen["review_url"].endswith(f"/reviews/{seen['checkpoint_id']}")
    assert [(await video_app.api.get(each, key=None)).status_code for each in links] == [200] * len(links)
    other = link.replace(audio_review["video_id"], seen["video_id"])
    refused = [await video_app.api.get(each, key=None) for each in (link.partition("?")[0], other, link[:-1])]
    assert [answer.status_code for answer in refused] == [401, 404, 404]
    await video_app.api.sandbox.clock.advance(timedelta(hours=25))
    assert (await video_app.api.get(link, key=None)).status_code == 410


def digest_in(final: dict[str, Any]) -> str:
    return str(final["data"]["video_preview_url"].split("/")[-2])


async def test_the_content_of_a_final_review_is_what_is_published(video_app: FastVideoApp, tmp_path: Path) -> None:
    final = await video_app.order_until("final_review")
    await video_app.finish(final)
    (video,) = await LocalChannel(tmp_path / "channel").videos()
    reported = {"title": video.title, "description": video.description, "tags": list(video.tags)}
    own = [tag for tag in reported["tags"] if not tag.startswith("retoma-")]  # the mark that identifies an upload
    assert reported | {"tags": own} == final["data"]["metadata"]
    assert all(final["data"]["metadata"].values())


async def test_a_batch_contains_only_open_checkpoints_of_its_type(video_app: FastVideoApp) -> None:
    decided, open_one = await video_app.order_until_script_review(), await video_app.order_until_script_review()
    await video_app.order_until("audio_review")
    await video_app.decide(decided, "rejected", notes="não")
    for kind, ids in (("script_review", {open_one["checkpoint_id"]}), ("final_review", set())):
        body = (await video_app.api.get(f"/api/v1/checkpoints/batch?type={kind}&limit=10")).json()
        assert ({one["checkpoint_id"] for one in body["batch"]}, body["total_pending"]) == (ids, len(ids))


async def test_two_concurrent_reviewers_claim_different_checkpoints(video_app: FastVideoApp) -> None:
    waiting = {(await video_app.order_until_script_review())["checkpoint_id"] for _ in range(4)}
    ana, rui = await asyncio.gather(claim_checkpoints("ana", video_app), claim_checkpoints("rui", video_app))
    assert ana.isdisjoint(rui)
    assert ana | rui == waiting


async def claim_checkpoints(reviewer: str, video_app: FastVideoApp) -> set[str]:
    """Return the claimed checkpoints, page by page."""
    address = f"/api/v1/checkpoints/batch?type=script_review&limit=2&reviewer={reviewer}"
    body = (await video_app.api.get(address)).json()
    handed = body["batch"]
    while body["next"]:
        body = (await video_app.api.get(f"{address}&after={body['next']}")).json()
        handed += body["batch"]
    return {one["checkpoint_id"] for one in handed}


async def test_a_final_review_without_a_thumbnail_fails_alone_in_a_batch(video_app: FastVideoApp) -> None:
    final, script = await video_app.order_until("final_review"), await video_app.order_until_script_review()
    ids = [final["checkpoint_id"], script["checkpoint_id"]]
    answer = await video_app.api.post("/api/v1/checkpoints/batch/approve", json={"checkpoint_ids": ids})
    body = {one["checkpoint_id"]: one["status"] for one in answer.json()["results"]}
    assert (answer.status_code, body) == (200, dict(zip(ids, ["error", "approved"], strict=True)))
    assert (await video_app.checkpoint(ids[0]))["status"] == "pending"


async def test_channels_are_processed_in_parallel(video_app: FastVideoApp) -> None:
    channels = ("ciencia", "historia", "jogos")
    videos = {name: await video_app.order(channel=name) for name in channels}
    async with video_app.api.sandbox.manual_worker() as worker:
        claims = await worker.claim(3)
        assert {str(claim.run) for claim in claims} == set(videos.values())
        hanging, *others = claims
        await worker.record_outcomes(await worker.attempt(others))
        await video_app.work()
        shown = {video: (await video_app.show(video))["stage"] for video in videos.values()}
    assert shown == {video: "researching" if video == str(hanging.run) else "scripted" for video in videos.values()}


async def test_the_metrics_page_shows_five_metrics_with_their_targets(database: Database, tmp_path: Path) -> None:
    await empty_database(database)
    async with running_video_pages(database, tmp_path) as desk:
        shown = text_of(await desk.read("/videos/metrics"))
    rows = re.findall(r"([A-Z][a-z ,]+) \S ((?:under|over) \d+(?: \w+|%)) No data yet", shown)
    assert rows == [
        ("Average wait for a decision", "under 2 hr"),
        ("Approved at the first review", "over 85%"),
        ("Steps that needed a retry", "under 10%"),
        ("From start to end, excluding reviews", "under 30 min"),
        ("Failed permanently", "under 2%"),
    ]
