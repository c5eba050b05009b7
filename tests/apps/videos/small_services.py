"""Services with small frames, all on this machine."""

from __future__ import annotations

from pathlib import Path

from retoma import App
from retoma.files import FileSettings, create_file_store
from retoma_apps.providers.footage.offline import Frames, OfflineFootage
from retoma_apps.providers.images.offline import OfflineImages
from retoma_apps.providers.speech.espeak import Espeak
from retoma_apps.providers.youtube import LocalChannel
from retoma_apps.videos.application import make_app
from retoma_apps.videos.services import Services
from retoma_apps.videos.steps.writing.template import TemplateWriter

SIZE = (320, 180)


def make_small_services(folder: Path) -> Services:
    channel = LocalChannel(folder / "channel")
    return Services(
        files=create_file_store(FileSettings(home=folder)),
        writer=TemplateWriter(),
        voices={"espeak": Espeak()},
        footage=OfflineFootage(Frames(*SIZE, fps=10)),
        images=OfflineImages(),
        channel=lambda _: channel,
        size=SIZE,
        fps=10,
    )


def make_small_app(folder: Path) -> App:
    return make_app(make_small_services(folder))
