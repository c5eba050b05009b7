"""What is made again, what follows from it, and what history tells of it."""

from __future__ import annotations

from collections import Counter
from dataclasses import replace
from itertools import pairwise
from pathlib import Path
from typing import Any
from uuid import UUID

from retoma.store.database import Database
from retoma_apps.videos.writing.port import Written
from retoma_apps.videos.writing.template import TemplateWriter
from tests.apps.videos.house import House, a_house
from tests.apps.videos.studio import small_studio
from tests.conftest import empty


async def test_a_narration_of_the_old_script_is_never_used_with_a_new_one(house: House) -> None:
    checkpoint = await house.scripted()
    run = UUID(checkpoint["video_id"])
    await house.decide(checkpoint, "approved")
    before = await house.asked(str(run))
    script = (await house.client.results(run))["script_review"]
    script["scenes"][0]["text"] = "Hoje falamos de outra coisa."
    await house.client.edit(run, "script_review", script, by="ana")
    after = await house.asked(str(run))
    assert (before["checkpoint_type"], after["checkpoint_type"]) == ("audio_review", "audio_review")
    assert after["checkpoint_id"] != before["checkpoint_id"]
    assert after["data"]["lines"][0]["text"].startswith("Hoje falamos")
    late = await house.decide(before, "approved")
    assert late.status_code == 409
    new, old = [one.output["lines"] for one in await house.client.made(run, "audio_generation")]
    assert (new, old) == (after["data"]["lines"], before["data"]["lines"])


async def test_there_is_one_checkpoint_for_each_step_and_revision(house: House) -> None:
    checkpoint = await house.scripted()
    await house.decide(checkpoint, "revision_requested", notes="mais curto")
    await house.asked(checkpoint["video_id"])
    await house.work()
    reviews = await house.client.reviews(run=UUID(checkpoint["video_id"]), states=None)
    assert Counter((one.step, one.revision) for one in reviews) == {("script_review", 1): 1, ("script_review", 2): 1}


class Stumbling(TemplateWriter):
    def __init__(self) -> None:
        self.stumbles = 1

    async def script(self, *given: Any, **options: Any) -> Written:
        if self.stumbles:
            self.stumbles -= 1
            raise ConnectionError("the line is dead")
        return await super().script(*given, **options)


async def test_history_tells_of_retries_revisions_and_going_on_with_their_times(
    database: Database, tmp_path: Path
) -> None:
    await empty(database)
    async with a_house(database, tmp_path, replace(small_studio(tmp_path), writer=Stumbling())) as house:
        video = await house.order()
        await house.api.sandbox.work()
        await house.decide(await house.asked(video), "revision_requested", notes="mais curto")
        await house.decide(await house.asked(video), "approved")
        await house.work_once()
        events = await house.client.events(UUID(video))
    told = [
        (event.kind, event.step, (event.data or {}).get("what") or (event.data or {}).get("act")) for event in events
    ]
    wanted = [
        ("retry", "script_generation", None),
        ("review", "script_review", "sent_back"),
        ("act", None, "send_back"),
        ("review", "script_review", "approved"),
        ("result", "script_review", None),
    ]
    assert [one for one in told if one in wanted] == wanted
    assert all(one.at <= other.at for one, other in pairwise(events))
