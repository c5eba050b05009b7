from __future__ import annotations

from pathlib import Path
from uuid import UUID

from retoma_apps.providers.youtube import LocalChannel
from tests.apps.videos.house import House
from tests.apps.videos.test_definition import STEPS


async def test_a_rejection_at_any_checkpoint_ends_the_production_and_publishes_nothing(
    house: House, tmp_path: Path
) -> None:
    """One video for all: what a person rejected can be forked, and then they are asked again."""
    video = await house.order()
    for step in ("script_review", "audio_review", "broll_review", "final_review"):
        checkpoint = await house.asked(video)
        assert checkpoint["checkpoint_type"] == step
        await house.decide(checkpoint, "rejected", notes=f"não: {step}")
        await house.work()
        shown = await house.show(video)
        assert (shown["status"], shown["error_message"]) == ("rejected", f"Rejected at {step}: não: {step}")
        assert await house.begun(video) == set(STEPS[: STEPS.index(step)])
        if step != "final_review":
            video = str((await house.client.fork(UUID(video))).id)
            await house.decide(await house.asked(video), "approved")
    assert await LocalChannel(tmp_path / "channel").videos() == []
