from __future__ import annotations

from pathlib import Path
from uuid import UUID

from retoma_apps.providers.youtube import LocalChannel
from tests.apps.videos.test_definition import STEPS
from tests.apps.videos.video_app import VideoApp


async def test_a_rejection_at_any_checkpoint_ends_the_production_and_publishes_nothing(
    video_app: VideoApp, tmp_path: Path
) -> None:
    """One video is enough: a rejected one can be forked, and then is reviewed again."""
    video = await video_app.order()
    for step in ("script_review", "audio_review", "broll_review", "final_review"):
        checkpoint = await video_app.work_until_review(video)
        assert checkpoint["checkpoint_type"] == step
        await video_app.decide(checkpoint, "rejected", notes=f"não: {step}")
        await video_app.work()
        shown = await video_app.show(video)
        assert (shown["status"], shown["error_message"]) == ("rejected", f"Rejected at {step}: não: {step}")
        assert await video_app.list_started_steps(video) == set(STEPS[: STEPS.index(step)])
        if step != "final_review":
            video = str((await video_app.client.runs.fork(UUID(video))).id)
            await video_app.decide(await video_app.work_until_review(video), "approved")
    assert await LocalChannel(tmp_path / "channel").videos() == []
