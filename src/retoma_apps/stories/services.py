"""The external services that a story needs, or their offline implementations."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from retoma_apps.media.services import FilmServices
from retoma_apps.providers.images import Images
from retoma_apps.stories.steps.writing.port import StoryWriter


@dataclass(frozen=True, kw_only=True)
class Services(FilmServices):
    """The spare writers and image services replace the first one if it fails; steps take them as the resources `writer`
    and `images`."""

    writer: StoryWriter
    images: Images
    spare_writers: Sequence[StoryWriter] = ()
    spare_images: Sequence[Images] = ()

    @property
    def offline_services(self) -> tuple[str, ...]:
        """The names of the services that are replaced by this machine."""
        return self.list_offline(writer=self.writer.is_offline, images=self.images.is_offline)
