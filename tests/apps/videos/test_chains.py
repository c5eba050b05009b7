"""A video whose language model or image service fails continues with the next one."""

from __future__ import annotations

from pathlib import Path
from typing import Any
from uuid import UUID

import pytest

from retoma.store.database import Database
from retoma_apps.providers.chains import get_first_provider
from retoma_apps.providers.images.errors import ImageUnavailable
from retoma_apps.providers.llm.errors import LlmUnavailable
from retoma_apps.videos.application import from_environment
from tests.apps.videos.fast_video_app import BlankImages, FailingWriter, running_fast_video_app
from tests.conftest import empty_database


class BrokenImages(BlankImages):
    name = "broken"

    async def make(self, prompt: str, *, width: int, height: int) -> bytes:
        raise ImageUnavailable("no answer")


class SpareWriter(FailingWriter):
    name = "spare"


async def list_switches(client: Any, video: str) -> set[tuple[str, str, str]]:
    """Return the steps that moved on to another provider, with both providers."""
    events = await client.runs.list_events(UUID(video), kinds=["retry"])
    return {
        (event.step, event.data["provider"], event.data["next_provider"])
        for event in events
        if event.data.get("next_provider")
    }


async def test_a_failing_model_and_image_service_are_replaced(
    database: Database, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    await empty_database(database)
    async with running_fast_video_app(
        database,
        tmp_path,
        monkeypatch,
        spare_writers=[SpareWriter()],
        images=BrokenImages(),
        spare_images=[BlankImages()],
    ) as video_app:
        video_app.failures["research"] = [LlmUnavailable("no answer") for _ in range(4)]
        video = await video_app.order()
        await video_app.api.sandbox.work()
        checkpoint = await video_app.work_until_review(video)
        for _ in range(3):
            await video_app.approve(checkpoint)
            await video_app.api.sandbox.work()
            checkpoint = await video_app.work_until_review(video)
        assert checkpoint["checkpoint_type"] == "final_review"
        assert await list_switches(video_app.client, video) == {
            ("research", "offline-offline-bundled", "offline-spare"),
            ("thumbnail_gen", "broken", "offline"),
        }


def test_the_variables_name_the_models_and_image_services(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.chdir(tmp_path)
    for name in ("OPENROUTER_API_KEY", "IMAGES_API_KEY", "IMAGES_FALLBACK_API_KEY"):
        monkeypatch.setenv(name, "secret")
    monkeypatch.setenv("VIDEOS_FALLBACK_MODELS", "acme/second")
    resources = {name: each.default for name, each in from_environment().resources.items()}
    assert resources["writer"].names == ("openrouter-openai-gpt-5-mini", "openrouter-acme-second")
    assert resources["images"].names == ("openai", "openai-fallback")


def test_nothing_offline_replaces_a_service(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.chdir(tmp_path)
    for name in ("OPENROUTER_API_KEY", "IMAGES_API_KEY"):
        monkeypatch.setenv(name, "secret")
    resources = {name: get_first_provider(each.default) for name, each in from_environment().resources.items()}
    assert (resources["writer"].is_offline, resources["images"].is_offline) == (False, False)
