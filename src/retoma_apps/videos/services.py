"""The external services that a video needs, or their offline implementations."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from retoma_apps.media.services import FilmServices
from retoma_apps.providers.footage import Footage
from retoma_apps.providers.images import Images
from retoma_apps.videos.steps.writing.port import Writer


@dataclass(frozen=True, kw_only=True)
class Services(FilmServices):
    """The spare writers and image services replace the first one if it fails; steps take them as the resources `writer`
    and `images`."""

    writer: Writer
    footage: Footage
    images: Images
    spare_writers: Sequence[Writer] = ()
    spare_images: Sequence[Images] = ()

    @property
    def offline_services(self) -> tuple[str, ...]:
        """The names of the services that are replaced by this machine."""
        return self.list_offline(
            writer=self.writer.is_offline, footage=self.footage.is_offline, images=self.images.is_offline
        )
