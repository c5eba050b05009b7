"""What stories cost, and what a number of them would cost in a day."""

from __future__ import annotations

from datetime import timedelta
from decimal import Decimal
from typing import Any

import pytest

from retoma import Context, Pipeline
from retoma_apps.stories.models import SceneAudio
from retoma_apps.stories.operations import costs
from retoma_apps.stories.operations.costs import estimate_day, get_costs
from retoma_apps.stories.steps import scenes
from tests.apps.stories.story_app import StoryApp, fake_voice


@pytest.mark.parametrize(
    ("stories", "jobs", "image", "audio", "total"),
    [
        (10, 150, "3.00", "0.195", "3.195"),
        (50, 750, "15.00", "0.975", "15.975"),
        (100, 1500, "30.00", "1.95", "31.95"),
    ],
)
def test_the_total_of_a_day_is_the_sum_of_its_parts(
    stories: int, jobs: int, image: str, audio: str, total: str
) -> None:
    estimate = estimate_day(stories)
    assert estimate.jobs == {"generate_image": jobs, "generate_audio": jobs}
    assert estimate.dollars == {"generate_image": Decimal(image), "generate_audio": Decimal(audio)}
    assert estimate.total == sum(estimate.dollars.values()) == Decimal(total)


async def test_the_cost_of_a_story_includes_retries(story_app: StoryApp, monkeypatch: pytest.MonkeyPatch) -> None:
    failures = [TimeoutError("the voice is busy")]

    async def charge_and_fail(scene: Any, voice: str, language: str, services: Any, ctx: Context) -> SceneAudio:
        spoken = await fake_voice(scene, voice, language, services, ctx)
        if failures:
            raise failures.pop()
        return spoken

    monkeypatch.setattr(scenes, "speak_scene", charge_and_fail)
    await story_app.client.costs.set_price("offline", "text", unit=20_000)
    await story_app.client.costs.set_price("offline", "voice", unit=10)
    story = await story_app.order("Tea", scenes=2)
    await story_app.api.sandbox.work()
    shown = await story_app.show(story)
    assert shown["status"] == "ready_for_review"
    assert shown["cost_micros"] == 2 * 20_000 + 3 * 10 * len("Sentence 1 on Tea.")


async def test_ten_stories_cost_three_dollars_of_images(story_app: StoryApp) -> None:
    await story_app.client.costs.set_price("offline", "text", unit=20_000)
    for number in range(10):
        await story_app.order(f"Story {number}")
    await story_app.work()
    assert (await get_costs(story_app.client)).by_type["generate_image"] == 3_000_000
    assert len(story_app.painter.prompts) == 150


async def test_costs_are_shown_by_day_story_and_job_type(story_app: StoryApp) -> None:
    await story_app.client.costs.set_price("offline", "text", unit=20_000)
    await story_app.client.costs.set_price("offline", "voice", unit=0)
    first = await story_app.order_until_review("Tea", scenes=1)
    today = (await story_app.client.now()).date()
    await story_app.api.sandbox.clock.advance(timedelta(days=1))
    second = await story_app.order_until_review("Coffee", scenes=2)
    found = await get_costs(story_app.client)
    assert [(str(run), micros) for run, micros in found.by_story.items() if micros] == [
        (second, 40_000),
        (first, 20_000),
    ]
    assert (found.by_day[today], found.by_day[today + timedelta(days=1)]) == (20_000, 40_000)
    assert {step: micros for step, micros in found.by_type.items() if micros} == {"generate_image": 60_000}
    assert found.total == 60_000


async def test_charges_of_other_pipelines_are_left_out(story_app: StoryApp, monkeypatch: pytest.MonkeyPatch) -> None:
    await story_app.client.costs.set_price("offline", "text", unit=20_000)
    await story_app.order_until_review("Tea", scenes=1)
    assert (await get_costs(story_app.client)).total > 0
    monkeypatch.setattr(costs, "story", Pipeline("another"))
    assert (await get_costs(story_app.client)).total == 0


async def test_charges_of_other_channels_are_left_out(story_app: StoryApp) -> None:
    await story_app.client.costs.set_price("offline", "text", unit=20_000)
    for channel, scenes_ordered in (("one", 1), ("two", 2)):
        await story_app.order_until_review("Tea", channel=channel, scenes=scenes_ordered)
    assert (await get_costs(story_app.client, tenant="one")).by_type["generate_image"] == 20_000
    assert (await get_costs(story_app.client)).by_type["generate_image"] == 60_000


async def test_costs_of_the_last_days_begin_at_midnight(story_app: StoryApp) -> None:
    await story_app.client.costs.set_price("offline", "text", unit=20_000)
    await story_app.order_until_review("Tea", scenes=1)
    await story_app.api.sandbox.clock.advance(timedelta(days=costs.DAYS - 1))
    recent = await get_costs(story_app.client)
    assert (recent.by_type["generate_image"], len(recent.by_day)) == (20_000, costs.DAYS)
    await story_app.api.sandbox.clock.advance(timedelta(days=1))
    assert (await get_costs(story_app.client)).total == 0
