"""The routes: the same article again, cancelling, regenerating, decisions, blogs and metrics."""

from __future__ import annotations

import asyncio
from datetime import timedelta
from pathlib import Path
from typing import Any
from uuid import UUID, uuid4

import pytest

from retoma.engine.outcomes import Interrupted
from retoma.errors import ProviderDown
from retoma.reviews import Decision
from retoma.store.database import Database
from retoma_apps.autowriter import pipeline
from retoma_apps.autowriter.pipeline import article
from retoma_apps.autowriter.steps.writing.offline import MODEL
from retoma_apps.providers.images.errors import ImageUnavailable
from retoma_apps.providers.llm.errors import LlmUnavailable
from tests.apps.autowriter.samples import REQUEST, make_request
from tests.apps.autowriter.writer_app import COST, WriterApp, open_writer_app
from tests.engine.builders import run_next


async def post(writer_app: WriterApp, path: str = "", **options: Any) -> tuple[int, dict[str, Any]]:
    answer = await writer_app.api.post(f"/autowriter/jobs{path}", **options)
    return answer.status_code, dict(answer.json())


async def test_a_new_article_and_one_in_progress_are_answered_202_and_a_finished_one_200(
    writer_app: WriterApp,
) -> None:
    status, first = await post(writer_app, json=REQUEST)
    assert (status, first["state"], first["idempotency_key"]) == (202, "pending", make_request().identity)
    status, again = await post(writer_app, json=REQUEST)
    assert (status, again["job_id"]) == (202, first["job_id"])
    await writer_app.work()
    status, finished = await post(writer_app, json=REQUEST)
    assert (status, finished["job_id"], finished["state"]) == (200, first["job_id"], "done")
    assert (await writer_app.api.get("/autowriter/jobs")).json()["jobs"][0]["job_id"] == first["job_id"]
    assert len(await writer_app.list_drafts()) == 1


async def test_the_same_article_with_another_body_is_answered_422(writer_app: WriterApp) -> None:
    await post(writer_app, json=REQUEST)
    status, problem = await post(writer_app, json={**REQUEST, "tone": "leve"})
    assert (status, problem["code"]) == (422, "IDEMPOTENCY_KEY_REUSED")


async def test_fifty_requests_at_once_make_one_article(writer_app: WriterApp) -> None:
    answers = await asyncio.gather(*(post(writer_app, json=REQUEST) for _ in range(50)))
    assert {status for status, _ in answers} == {202}
    assert len({body["job_id"] for _, body in answers}) == 1
    assert len(await writer_app.client.runs.list(pipeline="article")) == 1


async def test_a_new_version_of_the_pipeline_alone_publishes_nothing_again(
    writer_app: WriterApp, monkeypatch: pytest.MonkeyPatch
) -> None:
    await writer_app.write()
    monkeypatch.setattr(pipeline, "PIPELINE_VERSION", "2")
    status, shown = await post(writer_app, json={**REQUEST, "pipeline_version": "2"})
    await writer_app.work()
    assert (status, shown["revision"], shown["pipeline_version"]) == (200, 1, "1")
    assert len(writer_app.blog.sent) == 1


async def test_regenerating_writes_a_new_revision_of_the_same_post_with_the_new_version(
    writer_app: WriterApp, monkeypatch: pytest.MonkeyPatch
) -> None:
    run = (await writer_app.write()).id
    monkeypatch.setattr(pipeline, "PIPELINE_VERSION", "2")
    for _ in range(2):  # the same key is the same action
        status, _body = await post(
            writer_app, json={**REQUEST, "regenerate": True}, headers={"Idempotency-Key": "once"}
        )
        assert status == 202
    await writer_app.work()
    shown = await writer_app.show(run)
    assert (shown["state"], shown["revision"], shown["pipeline_version"]) == ("done", 2, "2")
    (draft,) = await writer_app.list_drafts()
    assert draft["revision"] == 2
    status, started = await post(writer_app, f"/{run}/regenerate")
    assert (status, started["revision"]) == (202, 3)


async def test_regenerating_an_unknown_article_writes_it_once(writer_app: WriterApp) -> None:
    status, shown = await post(writer_app, json={**REQUEST, "regenerate": True})
    assert (status, shown["revision"]) == (202, 1)


async def test_an_article_of_an_unknown_blog_is_refused(writer_app: WriterApp) -> None:
    status, problem = await post(writer_app, json={**REQUEST, "blog_id": "outro"})
    assert (status, problem["code"]) == (404, "BLOG_NOT_FOUND")


async def test_a_wrong_request_names_the_field(writer_app: WriterApp) -> None:
    status, problem = await post(writer_app, json={**REQUEST, "word_count": 7})
    assert status == 422
    assert problem["errors"][0]["field"] == "word_count"


async def test_a_cancelled_article_says_who_cancelled_it(writer_app: WriterApp) -> None:
    _, started = await post(writer_app, json=REQUEST)
    status, shown = await post(writer_app, f"/{started['job_id']}/cancel")
    assert (status, shown["state"]) == (200, "canceled")
    assert shown["ended"] == {"by": "key test", "reason": "cancelled"}
    await writer_app.work()
    assert await writer_app.list_drafts() == []
    for path in ("rerun", "regenerate"):
        body = {"json": {"group": "seo"}} if path == "rerun" else {}
        status, problem = await post(writer_app, f"/{started['job_id']}/{path}", **body)
        assert (status, "key test ended article" in problem["detail"]) == (409, True)


async def test_an_article_that_is_being_written_is_cancelled_before_it_is_published(writer_app: WriterApp) -> None:
    run = await writer_app.start()
    async with writer_app.api.sandbox.manual_worker() as worker:
        claims = await worker.claim(100)
        while claims[0].step != "published_wp":
            claims = await worker.record_outcomes(await worker.attempt(claims), limit=100)
        status, _ = await post(writer_app, f"/{run}/cancel")
        assert status == 200
        await worker.record_outcomes([Interrupted(claim) for claim in claims])
    await writer_app.work()
    assert await writer_app.get_state(run) == "canceled"
    assert (writer_app.blog.sent, await writer_app.list_drafts()) == ([], [])


async def test_an_article_that_waits_for_a_person_is_cancelled_and_never_published(writer_app: WriterApp) -> None:
    run = (await writer_app.write(make_request(word_count=600))).id
    assert await writer_app.get_state(run) == "needs_review"
    _, shown = await post(writer_app, f"/{run}/cancel")
    await writer_app.work()
    assert (shown["state"], await writer_app.get_state(run)) == ("canceled", "canceled")
    assert await writer_app.client.reviews.list(run=run) == []
    assert await writer_app.list_drafts() == []


async def test_an_article_that_a_person_ended_is_answered_with_who_and_why_if_requested_again(
    writer_app: WriterApp,
) -> None:
    run = (await writer_app.write(make_request(word_count=600))).id
    await writer_app.decide(run, "reject", notes="curto demais")
    for regenerate in (False, True):
        body = {**REQUEST, "word_count": 600, "regenerate": regenerate}
        status, answer = await post(writer_app, json=body)
        if regenerate:
            assert (status, answer["code"]) == (409, "CONFLICT")
            assert "ana ended article" in answer["detail"]
            assert "curto demais" in answer["detail"]
        else:
            assert (status, answer["job_id"], answer["state"]) == (200, str(run), "canceled")
            assert answer["ended"] == {"by": "ana", "reason": "curto demais"}
    await writer_app.work()
    assert (await writer_app.show(run))["revision"] == 1


async def test_an_article_accepted_by_one_server_is_shown_and_written_by_another(
    writer_app: WriterApp, database: Database, tmp_path: Path
) -> None:
    _, accepted = await post(writer_app, json=REQUEST)
    # The database is all that they have in common.
    async with open_writer_app(database, tmp_path / "another") as other:
        shown = await other.show(UUID(accepted["job_id"]))
        assert shown == accepted
        await other.work()
        assert await other.get_state(UUID(accepted["job_id"])) == "done"
        assert len(await other.list_drafts()) == 1
    assert (await writer_app.show(UUID(accepted["job_id"])))["state"] == "done"


async def test_a_rejection_after_publication_leaves_the_draft_and_marks_it(writer_app: WriterApp) -> None:
    writer_app.pictures.errors["larga"] = [ImageUnavailable("no answer")] * 3
    run = (await writer_app.write()).id
    status, shown = await post(
        writer_app, f"/{run}/decision", json={"action": "reject", "notes": "sem imagem não serve"}
    )
    assert status == 200
    await writer_app.work()
    shown = await writer_app.show(run)
    assert (shown["state"], shown["ended"]) == ("canceled", {"by": "key test", "reason": "sem imagem não serve"})
    (draft,) = await writer_app.list_drafts()
    assert (draft["post_status"], draft["note"]) == ("draft", "key test: sem imagem não serve")


@pytest.mark.parametrize("way", ["inbox", "api"])
async def test_a_rejection_anywhere_marks_the_draft(writer_app: WriterApp, way: str) -> None:
    writer_app.pictures.errors["larga"] = [ImageUnavailable("no answer")] * 3
    run = (await writer_app.write()).id
    review = await writer_app.get_review(run)
    if way == "inbox":
        decision = Decision("reject", by="test", notes="não", via="page")
        await writer_app.client.reviews.decide(review.id, decision)
    else:
        body = {"action": "reject", "notes": "não"}
        answer = await writer_app.api.post(f"/api/v1/reviews/{review.id}/decision", json=body)
        assert answer.status_code == 200, answer.text
    await writer_app.work()
    (draft,) = await writer_app.list_drafts()
    assert (draft["post_status"], draft["note"]) == ("draft", "test: não")


async def test_the_mark_waits_for_a_site_that_is_down(writer_app: WriterApp, monkeypatch: pytest.MonkeyPatch) -> None:
    writer_app.pictures.errors["larga"] = [ImageUnavailable("no answer")] * 3
    run = (await writer_app.write()).id
    with monkeypatch.context() as patch:
        patch.setattr(writer_app.blog, "mark", fail_once(writer_app.blog.mark))
        await writer_app.decide(run, "reject", notes="não")
    (draft,) = await writer_app.list_drafts()
    assert draft["note"] == "ana: não"


def fail_once(call: Any) -> Any:
    errors = [ProviderDown("the site is down")]

    async def failing(*values: Any) -> Any:
        if errors:
            raise errors.pop()
        return await call(*values)

    return failing


async def test_a_rejection_before_publication_has_no_draft_to_mark(writer_app: WriterApp) -> None:
    run = (await writer_app.write(make_request(word_count=600))).id
    await post(writer_app, f"/{run}/decision", json={"action": "reject", "notes": "não"})
    await writer_app.work()
    marks = await writer_app.client.runs.list(pipeline="article_mark")
    assert [mark.state for mark in marks] == ["completed"]
    assert await writer_app.list_drafts() == []


@pytest.mark.parametrize(
    ("decision", "state"),
    [
        ({"action": "accept"}, "done"),
        ({"action": "rerun", "step": "content_created", "notes": "mais longo"}, "needs_review"),
        ({"action": "reject", "notes": "não"}, "canceled"),
    ],
)
async def test_each_decision_leads_on(writer_app: WriterApp, decision: dict[str, Any], state: str) -> None:
    run = (await writer_app.write(make_request(word_count=600))).id
    shown = await writer_app.show(run)
    assert "content_created" in shown["review"]["can_rerun"]
    status, _ = await post(writer_app, f"/{run}/decision", json=decision)
    assert status == 200
    await writer_app.work()
    shown = await writer_app.show(run)
    assert shown["state"] == state
    assert shown["revision"] == (2 if decision["action"] == "rerun" else 1)


async def test_an_article_without_an_open_review_cannot_be_decided(writer_app: WriterApp) -> None:
    run = (await writer_app.write()).id
    status, _ = await post(writer_app, f"/{run}/decision", json={"action": "accept"})
    assert status == 409


async def test_articles_are_listed_by_blog_and_state(writer_app: WriterApp) -> None:
    run = (await writer_app.write()).id
    waiting = await writer_app.start(make_request(word_count=401))

    async def list_ids(**query: str) -> list[str]:
        answer = await writer_app.api.get("/autowriter/jobs", params=query)
        return [each["job_id"] for each in answer.json()["jobs"]]

    assert await list_ids() == [str(waiting), str(run)]
    assert await list_ids(state="done") == [str(run)]
    assert await list_ids(state="pending") == [str(waiting)]
    assert await list_ids(state="running") == []
    assert await list_ids(blog_id="outro") == []


async def test_a_key_for_one_blog_sees_and_changes_only_that_blog(writer_app: WriterApp) -> None:
    run = (await writer_app.write()).id
    key = await writer_app.api.make_key("runs:read", "runs:write", tenant="outro")
    assert (await writer_app.api.get(f"/autowriter/jobs/{run}", key=key)).status_code == 404
    assert (await writer_app.api.post("/autowriter/jobs", key=key, json=REQUEST)).status_code == 404
    assert (await writer_app.api.get("/autowriter/blogs", key=key)).json() == {"blogs": []}
    answer = await writer_app.api.call("PUT", "/autowriter/blogs/outro", key=key, json={"name": "Outro"})
    assert answer.status_code == 403
    assert (await writer_app.api.get("/autowriter/metrics", key=key)).status_code == 403


async def test_a_blog_is_created_and_listed(writer_app: WriterApp) -> None:
    answer = await writer_app.api.call("PUT", "/autowriter/blogs/cozinha", json={"name": "Cozinha", "language": "es"})
    assert answer.status_code == 200, answer.text
    found = (await writer_app.api.get("/autowriter/blogs")).json()["blogs"]
    assert [each["blog_id"] for each in found] == ["cozinha", "saude"]


async def test_a_run_of_another_pipeline_is_not_an_article(writer_app: WriterApp) -> None:
    assert (await writer_app.api.get(f"/autowriter/jobs/{uuid4()}")).status_code == 404


async def get_metrics(writer_app: WriterApp) -> dict[str, dict[str, Any]]:
    answer = await writer_app.api.get("/autowriter/metrics")
    return {each["period"]: each for each in answer.json()["metrics"]}


async def test_the_metrics_cover_the_last_day_and_the_last_week(writer_app: WriterApp) -> None:
    assert (await get_metrics(writer_app))["24h"]["failure_rate"] is None
    writer_app.writer.errors = [LlmUnavailable("no answer")] * 3
    await writer_app.write(make_request(word_count=401))
    await writer_app.api.sandbox.clock.advance(timedelta(days=2))
    writer_app.writer.errors = [LlmUnavailable("no answer")]
    await writer_app.write()
    found = await get_metrics(writer_app)
    day, week = found["24h"], found["7d"]
    assert (day["ended"], day["failure_rate"], day["jobs_per_hour"]) == (1, 0, pytest.approx(1 / 24))
    assert (week["ended"], week["failure_rate"], week["jobs_per_hour"]) == (2, 0.5, pytest.approx(2 / 168))
    assert 0 < day["retry_rate"] < week["retry_rate"] < 1
    assert (day["mean_cost"], week["mean_cost"]) == (9 * COST, 4.5 * COST)


async def test_the_failure_rate_counts_failed_articles_and_no_others(writer_app: WriterApp) -> None:
    writer_app.writer.errors = [LlmUnavailable("no answer")] * 3
    failed = await writer_app.write(make_request(word_count=401))
    rejected = await writer_app.write(make_request(word_count=600))
    await writer_app.decide(rejected.id, "reject", notes="curto demais")
    cancelled = await writer_app.write(make_request(word_count=610))
    await writer_app.client.runs.cancel(cancelled.id)
    writer_app.pictures.errors["larga"] = [ImageUnavailable("no answer")] * 3
    incomplete = await writer_app.write(make_request(word_count=402))
    await writer_app.decide(incomplete.id, "approve")
    done = await writer_app.write()
    runs = [failed, rejected, cancelled, incomplete, done]
    states = [(await writer_app.get_run(run.id)).state for run in runs]
    assert states == ["failed", "rejected", "cancelled", "completed_with_errors", "completed"]
    day = (await get_metrics(writer_app))["24h"]
    assert (day["ended"], day["failure_rate"]) == (5, pytest.approx(1 / 5))


async def test_the_retry_rate_is_the_share_of_steps_with_more_than_one_attempt(writer_app: WriterApp) -> None:
    writer_app.writer.errors = [LlmUnavailable("no answer")] * 2
    run = await writer_app.write()
    jobs = await writer_app.client.runs.list_jobs(run.id)
    counted = [job for job in jobs if job.attempt and article.steps[job.step].review is None]
    assert [job.step for job in counted if job.attempt > 1] == ["brief_created"]
    assert (await get_metrics(writer_app))["24h"]["retry_rate"] == pytest.approx(1 / len(counted))


async def test_the_metrics_are_in_prometheus_format_too(writer_app: WriterApp) -> None:
    await writer_app.write()
    text = (await writer_app.api.get("/metrics")).text
    for name in ("jobs_per_hour", "failure_rate", "retry_rate", "mean_cost_micros"):
        assert f'autowriter_{name}{{period="24h"}}' in text
        assert f'autowriter_{name}{{period="7d"}}' in text


async def test_every_attempt_is_charged_in_micros_with_the_version_of_the_price(writer_app: WriterApp) -> None:
    price = await writer_app.client.costs.set_price("writer", MODEL, tokens_in=15_000_000)
    writer_app.writer.cost = None  # not reported, so the price list applies
    writer_app.writer.changes["Outline"] = {"sections": []}  # does not fit: paid for, and repaired
    run = await writer_app.write()
    assert await writer_app.get_state(run.id) == "failed"
    charges = await writer_app.client.costs.list_charges(run.id)
    paid = [(each.attempt, each.micros, each.price) for each in charges if each.step == "outline_created"]
    assert paid == [(attempt, 1_500, price.version) for attempt in (1, 1, 2, 2, 3, 3)]


async def test_images_are_charged_by_the_version_of_their_price(writer_app: WriterApp) -> None:
    price = await writer_app.client.costs.set_price("pictures", "tiny", unit=40_000)
    run = await writer_app.write()
    charges = await writer_app.client.costs.list_charges(run.id)
    images = [(each.item, each.micros, each.price) for each in charges if each.step == "images_resolved"]
    assert sorted(images) == [(item, 40_000, price.version) for item in ("featured", "inline-planta")]
    assert (await writer_app.show(run.id))["cost_micros"] == 9 * COST + 80_000


async def test_a_blog_whose_name_is_not_text_is_refused_and_not_stored(writer_app: WriterApp) -> None:
    content, headers = rb'{"name": "x\ud800"}', {"Content-Type": "application/json"}
    answer = await writer_app.api.call("PUT", "/autowriter/blogs/poison", content=content, headers=headers)
    listed = (await writer_app.api.get("/autowriter/blogs")).json()["blogs"]
    assert (answer.status_code, [blog["blog_id"] for blog in listed]) == (422, ["saude"])


async def test_simultaneous_calls_of_regenerate_write_one_revision(writer_app: WriterApp) -> None:
    run = (await writer_app.write()).id
    calls = await asyncio.gather(*(post(writer_app, f"/{run}/regenerate") for _ in range(20)))
    assert {started["revision"] for status, started in calls if status == 202} == {2}
    async with writer_app.api.sandbox.manual_worker() as worker:
        await run_next(worker)  # the first step has ended, so it could rerun
    assert (await post(writer_app, f"/{run}/regenerate"))[0] == 409
    await writer_app.work()
    assert (await writer_app.get_run(run)).revision == 2


async def test_simultaneous_requests_to_regenerate_write_one_revision(writer_app: WriterApp) -> None:
    run = (await writer_app.write()).id
    requests = (post(writer_app, json={**REQUEST, "regenerate": True}) for _ in range(20))
    assert {status for status, _ in await asyncio.gather(*requests)} == {202}
    await writer_app.work()
    assert (await writer_app.get_run(run)).revision == 2
    assert (await post(writer_app, json={**REQUEST, "regenerate": True}))[0] == 202
    await writer_app.work()
    assert (await writer_app.get_run(run)).revision == 3
