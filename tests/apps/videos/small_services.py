"""Services with small frames, all on this machine."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

from retoma import App
from retoma.files import FileSettings, create_file_store
from retoma_apps.providers.footage.offline import Frames, OfflineFootage
from retoma_apps.providers.images.offline import OfflineImages
from retoma_apps.providers.speech.espeak import Espeak
from retoma_apps.providers.topics import find_topic, list_topics
from retoma_apps.providers.youtube import LocalChannel
from retoma_apps.videos.application import make_app
from retoma_apps.videos.models import Fact, Script
from retoma_apps.videos.services import Services
from retoma_apps.videos.steps.writing.bundled import BundledWriter
from retoma_apps.videos.steps.writing.port import WritingRequest

SIZE = (320, 180)


class AnyTopicWriter(BundledWriter):
    """Writes about any topic as if it were a bundled one."""

    topics = None

    async def research(self, request: WritingRequest, **options: Any) -> list[Fact]:
        return await super().research(replace_topic(request), **options)

    async def script(self, request: WritingRequest, **options: Any) -> Script:
        written = await super().script(replace_topic(request), **options)
        return written.model_copy(update={"topic": request.brief.topic})


def replace_topic(request: WritingRequest) -> WritingRequest:
    brief = request.brief
    topic = find_topic(brief.topic, brief.language) or list_topics(brief.language)[0]
    return replace(request, brief=brief.model_copy(update={"topic": topic.title}))


def make_small_services(folder: Path) -> Services:
    channel = LocalChannel(folder / "channel")
    return Services(
        files=create_file_store(FileSettings(home=folder)),
        writer=BundledWriter(),
        voices={"espeak": Espeak()},
        footage=OfflineFootage(Frames(*SIZE, fps=10)),
        images=OfflineImages(),
        channel=lambda _: channel,
        size=SIZE,
        fps=10,
    )


def make_small_app(folder: Path) -> App:
    return make_app(make_small_services(folder))
