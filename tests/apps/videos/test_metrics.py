from __future__ import annotations

from datetime import timedelta

import pytest

from retoma.testing import NOON
from tests.apps.videos.video_app import TOPIC, VideoApp


async def test_the_wait_for_people_and_what_they_approve_the_first_time_are_counted(video_app: VideoApp) -> None:
    checkpoints = [await video_app.order_until_script_review(f"{TOPIC} {number}") for number in range(4)]
    decisions = [(1, "approved"), (2, "approved"), (3, "approved"), (6, "revision_requested")]
    for (hours, action), checkpoint in zip(decisions, checkpoints, strict=True):
        await video_app.api.sandbox.clock.set(NOON + timedelta(hours=hours))
        await video_app.decide(checkpoint, action, notes="mais curto")
    figures = await video_app.client.reviews.get_metrics("longform", NOON - timedelta(days=30))
    assert figures.mean_wait == pytest.approx(3 * 3600)
    assert (figures.first_decided, figures.approved_at_once) == (4, 3)
