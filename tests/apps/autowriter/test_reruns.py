"""Reruns of parts of an article: what runs again, what stays, and what reaches WordPress."""

from __future__ import annotations

import json
from hashlib import sha256
from typing import Any
from uuid import UUID

import pytest

from retoma.engine.claim_protocol import Claim
from retoma.records import StepRevision
from retoma.testing import ManualWorker
from retoma_apps.autowriter.states import STEPS
from retoma_apps.autowriter.steps.images import make_image_key
from retoma_apps.providers.images.errors import ImageUnavailable
from tests.apps.autowriter.writer_app import WriterApp
from tests.engine.builders import pass_heartbeat_timeout

SEO = {"title_slug_created", "meta_created", "headings_created"}
AFTER_SEO = {"internal_links_created", "quality_checked", "quality_gate_passed", "payload_ready", "published_wp"}
BODY = {"content_created", "tags_created", "faq_created"}
IMAGES = {"images_resolved", "payload_ready", "published_wp"}


async def rerun(writer_app: WriterApp, run: UUID, **body: Any) -> dict[str, Any]:
    """Rerun a part through the API, and work until nothing is left to do."""
    answer = await writer_app.api.post(f"/autowriter/jobs/{run}/rerun", json=body)
    assert answer.status_code == 202, answer.text
    await writer_app.work()
    return dict(answer.json())


async def list_changed(writer_app: WriterApp, run: UUID, revision: int) -> set[str]:
    """Return the steps that ran at a revision, without those that kept their earlier result."""
    jobs = await writer_app.client.runs.list_jobs(run)
    changed = set()
    for job in jobs:
        newest: StepRevision = (await writer_app.client.runs.get_step_history(run, job.step, job.item))[0]
        if newest.revision == revision and newest.reused_from is None:
            changed.add(job.step)
    return changed


async def test_rerun_images_makes_new_images_of_the_same_prompts_and_keeps_the_text(writer_app: WriterApp) -> None:
    run = (await writer_app.write()).id
    before = await writer_app.get_results(run)
    answer = await rerun(writer_app, run, group="images")
    after = await writer_app.get_results(run)
    assert answer["revision"] == 2
    assert await list_changed(writer_app, run, 2) >= IMAGES
    assert before["image_prompts_created"] == after["image_prompts_created"]
    assert before["content_created"] == after["content_created"]
    for kind, image in before["images_resolved"].items():
        assert after["images_resolved"][kind]["file"]["file"] != image["file"]["file"]
        assert after["images_resolved"][kind]["key"] != image["key"]
    (draft,) = await writer_app.list_drafts()
    assert draft["revision"] == 2


async def test_rerun_seo_changes_title_meta_and_headings_and_all_that_used_them(writer_app: WriterApp) -> None:
    run = (await writer_app.write()).id
    before = await writer_app.get_results(run)
    await rerun(writer_app, run, group="seo")
    after = await writer_app.get_results(run)
    assert before["title_slug_created"] != after["title_slug_created"]
    assert before["content_created"] == after["content_created"]
    assert before["images_resolved"] == after["images_resolved"]
    changed = await list_changed(writer_app, run, 2)
    assert SEO | AFTER_SEO - {"quality_gate_passed"} <= changed  # the report is the same, so the gate keeps its result
    assert not changed & (BODY | {"images_resolved", "brief_created"})
    (draft,) = await writer_app.list_drafts()
    assert (draft["revision"], draft["article"]["title"]) == (2, after["title_slug_created"]["title"])


async def test_rerun_body_writes_the_body_again_and_updates_the_same_post(writer_app: WriterApp) -> None:
    run = (await writer_app.write()).id
    first = (await writer_app.list_drafts())[0]
    before = await writer_app.get_results(run)
    await rerun(writer_app, run, group="body")
    after = await writer_app.get_results(run)
    assert before["content_created"] != after["content_created"]
    assert before["title_slug_created"] == after["title_slug_created"]
    assert before["images_resolved"] == after["images_resolved"]
    changed = await list_changed(writer_app, run, 2)
    assert changed >= BODY | {"internal_links_created", "quality_checked", "payload_ready", "published_wp"}
    assert not changed & (SEO | {"images_resolved", "brief_created", "outline_created"})
    (draft,) = await writer_app.list_drafts()
    assert (draft["post_id"], draft["revision"]) == (first["post_id"], 2)
    assert draft["article"]["content"] != first["article"]["content"]


@pytest.mark.parametrize("group", ["images", "seo", "body"])
async def test_each_rerun_raises_the_revision_by_one(writer_app: WriterApp, group: str) -> None:
    run = (await writer_app.write()).id
    for revision in (2, 3):
        await rerun(writer_app, run, group=group)
        assert (await writer_app.show(run))["revision"] == revision


async def test_results_from_before_a_rerun_stay_readable(writer_app: WriterApp) -> None:
    run = (await writer_app.write()).id
    before = await writer_app.get_results(run)
    await rerun(writer_app, run, group="body")
    earlier = await writer_app.client.runs.get_results(run, revision=1)
    assert earlier["content_created"] == before["content_created"]


async def test_one_step_alone_leaves_its_dependents_stale(writer_app: WriterApp) -> None:
    run = (await writer_app.write()).id
    await rerun(writer_app, run, step="title_slug_created", downstream=False)
    shown = await writer_app.show(run)
    stale = {each["step"] for each in shown["steps"] if each["stale"]}
    assert {"meta_created", "payload_ready"} <= stale
    assert "content_created" not in stale
    (draft,) = await writer_app.list_drafts()
    assert draft["revision"] == 1


async def test_everything_from_a_step_on_runs_again(writer_app: WriterApp) -> None:
    run = (await writer_app.write()).id
    calls = len(writer_app.writer.calls)
    await rerun(writer_app, run, from_step="content_created")
    assert sorted(writer_app.writer.calls[calls:]) == ["Content", "Faq", "Tags"]
    (draft,) = await writer_app.list_drafts()
    assert draft["revision"] == 2


async def test_a_rerun_names_exactly_one_part(writer_app: WriterApp) -> None:
    run = (await writer_app.write()).id
    for body in ({}, {"group": "seo", "step": "meta_created"}):
        answer = await writer_app.api.post(f"/autowriter/jobs/{run}/rerun", json=body)
        assert answer.status_code == 422
    unknown = await writer_app.api.post(f"/autowriter/jobs/{run}/rerun", json={"step": "nonsense"})
    assert unknown.status_code == 404


async def test_the_key_of_an_image_is_the_digest_of_job_type_prompt_and_revision(writer_app: WriterApp) -> None:
    run = (await writer_app.write()).id
    results = await writer_app.get_results(run)
    prompt = results["image_prompts_created"][0]["prompt"]
    parts = {
        "image_type": "featured",
        "job_id": str(run),
        "prompt_hash": sha256(prompt.encode()).hexdigest(),
        "revision": 1,
    }
    expected = sha256(json.dumps(parts, separators=(",", ":")).encode()).hexdigest()
    assert results["images_resolved"]["featured"]["key"] == expected
    assert make_image_key(run, "featured", prompt, 2) != expected


async def test_a_retry_within_a_revision_does_not_pay_for_an_image_again(writer_app: WriterApp) -> None:
    """The worker dies after the image was made and before the job was reported."""
    run = await writer_app.start()
    sandbox = writer_app.api.sandbox
    async with sandbox.manual_worker() as worker:
        images = await _work_until_images(worker)
        await worker.attempt(images)
        made = list(writer_app.pictures.prompts)
        assert len(made) == 2
        await worker.abandon()
        await pass_heartbeat_timeout(sandbox)
    await writer_app.work()
    assert await writer_app.get_state(run) == "done"
    assert writer_app.pictures.prompts == made


@pytest.mark.parametrize("is_reported", [True, False], ids=["after", "before"])
async def test_a_worker_that_dies_around_each_report_repeats_no_paid_call_and_publishes_once(
    writer_app: WriterApp, is_reported: bool
) -> None:
    """Each attempt has its own worker, which dies right after it has reported the result, or right before."""
    run, sandbox, died = await writer_app.start(), writer_app.api.sandbox, set[tuple[str, str]]()
    while not (await writer_app.get_run(run)).is_over:
        async with sandbox.manual_worker() as worker:
            (claim,) = await worker.claim(1)
            outcomes = await worker.attempt([claim])
            if is_reported or (claim.step, claim.item) in died:
                await worker.record_outcomes(outcomes)
            died.add((claim.step, claim.item))
            await worker.abandon()
            await pass_heartbeat_timeout(sandbox)
    assert await writer_app.get_state(run) == "done"
    assert {step for step, _ in died} >= set(STEPS) - {"csv_parsed", "quality_gate_passed"}
    assert len(writer_app.writer.calls) == len(set(writer_app.writer.calls)) == 9
    assert len(writer_app.pictures.prompts) == 2
    assert len(await writer_app.list_drafts()) == 1


async def test_only_a_failed_image_is_tried_again(writer_app: WriterApp) -> None:
    writer_app.pictures.errors["larga"] = [ImageUnavailable("no answer")]
    await writer_app.write()
    assert len(writer_app.pictures.prompts) == 3


async def _work_until_images(worker: ManualWorker) -> list[Claim]:
    """Do everything before the images, and return their claims."""
    while True:
        claims = await worker.claim(100)
        images = [claim for claim in claims if claim.step == "images_resolved"]
        await worker.record_outcomes(await worker.attempt([claim for claim in claims if claim not in images]))
        if images:
            return images
