"""Reruns, their consequences, and their history."""

from __future__ import annotations

from collections import Counter
from dataclasses import replace
from itertools import pairwise
from pathlib import Path
from typing import Any
from uuid import UUID

from retoma.store.database import Database
from retoma_apps.videos.models import Script
from retoma_apps.videos.steps.writing.bundled import BundledWriter
from tests.apps.videos.small_services import make_small_services
from tests.apps.videos.video_app import VideoApp, running_video_app
from tests.conftest import empty_database


async def test_a_narration_of_the_old_script_is_never_used_with_a_new_one(video_app: VideoApp) -> None:
    checkpoint = await video_app.order_until_script_review()
    run = UUID(checkpoint["video_id"])
    await video_app.decide(checkpoint, "approved")
    before = await video_app.work_until_review(str(run))
    script = (await video_app.client.runs.get_results(run))["script_review"]
    script["scenes"][0]["text"] = "Hoje falamos de outra coisa."
    await video_app.client.runs.edit(run, "script_review", script, by="ana")
    after = await video_app.work_until_review(str(run))
    assert (before["checkpoint_type"], after["checkpoint_type"]) == ("audio_review", "audio_review")
    assert after["checkpoint_id"] != before["checkpoint_id"]
    assert after["data"]["lines"][0]["text"].startswith("Hoje falamos")
    late = await video_app.decide(before, "approved")
    assert late.status_code == 409
    new, old = [one.output["lines"] for one in await video_app.client.runs.get_step_history(run, "audio_generation")]
    assert (new, old) == (after["data"]["lines"], before["data"]["lines"])


async def test_each_step_and_revision_has_one_checkpoint(video_app: VideoApp) -> None:
    checkpoint = await video_app.order_until_script_review()
    await video_app.decide(checkpoint, "revision_requested", notes="mais curto")
    await video_app.work_until_review(checkpoint["video_id"])
    await video_app.work()
    reviews = await video_app.client.reviews.list(run=UUID(checkpoint["video_id"]), states=None)
    assert Counter((one.step, one.revision) for one in reviews) == {("script_review", 1): 1, ("script_review", 2): 1}


class StumblingWriter(BundledWriter):
    def __init__(self) -> None:
        self.stumbles = 1

    async def script(self, *values: Any, **options: Any) -> Script:
        if self.stumbles:
            self.stumbles -= 1
            raise ConnectionError("the line is dead")
        return await super().script(*values, **options)


async def test_history_lists_retries_revisions_and_resumes_with_their_times(database: Database, tmp_path: Path) -> None:
    await empty_database(database)
    async with running_video_app(
        database, tmp_path, replace(make_small_services(tmp_path), writer=StumblingWriter())
    ) as video_app:
        video = await video_app.order()
        await video_app.api.sandbox.work()
        await video_app.decide(await video_app.work_until_review(video), "revision_requested", notes="mais curto")
        await video_app.decide(await video_app.work_until_review(video), "approved")
        await video_app.work_once()
        events = await video_app.client.runs.list_events(UUID(video))
    body = [
        (event.kind, event.step, (event.data or {}).get("what") or (event.data or {}).get("action")) for event in events
    ]
    wanted = [
        ("retry", "script_generation", None),
        ("review", "script_review", "sent_back"),
        ("action", None, "send_back"),
        ("review", "script_review", "approved"),
        ("result", "script_review", None),
    ]
    assert [one for one in body if one in wanted] == wanted
    assert all(one.at <= other.at for one, other in pairwise(events))
