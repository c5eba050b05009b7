from __future__ import annotations

from datetime import timedelta

import pytest

from retoma.testing import NOON
from tests.apps.videos.video_app import VideoApp


async def test_the_time_people_take_and_their_first_time_approvals_are_counted(video_app: VideoApp) -> None:
    checkpoints = [await video_app.order_until_script_review() for _ in range(4)]
    decisions = [(1, "approved"), (2, "approved"), (3, "approved"), (6, "revision_requested")]
    for (hours, action), checkpoint in zip(decisions, checkpoints, strict=True):
        await video_app.api.sandbox.clock.set(NOON + timedelta(hours=hours))
        await video_app.decide(checkpoint, action, notes="mais curto")
    metrics = await video_app.client.reviews.get_metrics("longform", NOON - timedelta(days=30))
    assert metrics.mean_wait == pytest.approx(3 * 3600)
    assert (metrics.first_decided, metrics.approved_at_once) == (4, 3)
