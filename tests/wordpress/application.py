"""AutoWriter as real processes run it for a real WordPress: offline, with pictures that take WordPress no time."""

from __future__ import annotations

from pathlib import Path

from retoma import Settings
from retoma.files import FileSettings, create_file_store
from retoma_apps.autowriter.application import make_app
from retoma_apps.autowriter.steps.writing.offline import OFFLINE_MODEL
from retoma_apps.providers import wordpress
from retoma_apps.providers.images.offline import OfflineImages
from retoma_apps.providers.keywords import OfflineKeywords

SIDE = 16


class SmallImages(OfflineImages):
    async def make(self, prompt: str, *, width: int, height: int) -> bytes:
        return await super().make(prompt, width=SIDE, height=SIDE)


app = make_app(
    llm=OFFLINE_MODEL,
    images=SmallImages(),
    keywords=OfflineKeywords(),
    open_blog=wordpress.configured_providers(Path("no-folder"))[0],
    files=create_file_store(FileSettings(home=Settings().home)),
)
