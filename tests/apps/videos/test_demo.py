from __future__ import annotations

from collections.abc import AsyncIterator
from functools import partial
from pathlib import Path

import pytest

from retoma.testing import Sandbox, sandbox
from retoma_apps.media.models import Channel
from retoma_apps.videos.demo import run_demo
from retoma_apps.videos.models import Brief
from retoma_apps.videos.pipeline import longform
from tests.apps.videos.small_services import make_small_app, make_small_services

ADDRESS = "http://127.0.0.1:8765"


@pytest.fixture
async def video_sandbox(tmp_path: Path) -> AsyncIterator[Sandbox]:
    async with sandbox(make_small_app(tmp_path)) as opened:
        yield opened


@pytest.mark.parametrize(
    ("language", "topic", "spoken"),
    [("pt", "Como investir em renda fixa", "pt-BR"), ("en", "How coffee is made", "en")],
)
async def test_a_sample_is_ordered_in_the_language_of_the_terminal(
    video_sandbox: Sandbox, tmp_path: Path, language: str, topic: str, spoken: str
) -> None:
    message = await anext(run_demo(make_small_services(tmp_path), video_sandbox.client, ADDRESS, language))
    (run,) = await video_sandbox.client.runs.list()
    assert (run.input["topic"], run.input["language"], run.tenant) == (topic, spoken, "principal")
    assert topic in message
    assert f"{ADDRESS}/videos/" in message


async def test_a_sample_is_ordered_once_even_if_its_channel_changes(video_sandbox: Sandbox, tmp_path: Path) -> None:
    order = partial(run_demo, make_small_services(tmp_path))
    await anext(order(video_sandbox.client, ADDRESS, "pt"))
    await anext(order(video_sandbox.client, ADDRESS, "pt"))
    await video_sandbox.client.tenants.set_profile("principal", Channel(seconds=90).model_dump())
    await anext(order(video_sandbox.client, ADDRESS, "pt"))
    assert len(await video_sandbox.client.runs.list()) == 1


async def test_the_sample_says_what_runs_on_this_machine(video_sandbox: Sandbox, tmp_path: Path) -> None:
    message = await anext(run_demo(make_small_services(tmp_path), video_sandbox.client, ADDRESS, "en"))
    assert "the writing, the footage, the thumbnail images, the voice (eSpeak), the channel" in message


async def test_the_sample_reports_its_end_and_next_time_that_it_already_existed(
    video_sandbox: Sandbox, tmp_path: Path
) -> None:
    order = partial(run_demo, make_small_services(tmp_path))
    messages = order(video_sandbox.client, ADDRESS, "en")
    await anext(messages)
    (run,) = await video_sandbox.client.runs.list()
    await video_sandbox.client.runs.cancel(run.id)
    assert await anext(messages) == f"“How coffee is made” ended without being published: {ADDRESS}/runs/{run.id}"
    assert "was ordered earlier and has ended" in await anext(order(video_sandbox.client, ADDRESS, "en"))


async def test_the_end_of_every_video_is_reported_except_earlier_ones(video_sandbox: Sandbox, tmp_path: Path) -> None:
    before, ordered = [await video_sandbox.client.start(longform, Brief(topic=topic)) for topic in ("Antes", "Depois")]
    await video_sandbox.client.runs.cancel(before.id)
    messages = run_demo(make_small_services(tmp_path), video_sandbox.client, ADDRESS, "pt")
    await anext(messages)
    for run in await video_sandbox.client.runs.list():
        await video_sandbox.client.runs.cancel(run.id)
    assert f"“Depois” terminou sem ser publicado: {ADDRESS}/runs/{ordered.id}" in {
        await anext(messages),
        await anext(messages),
    }
