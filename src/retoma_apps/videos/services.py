"""The external services that a video needs, or their offline implementations."""

from __future__ import annotations

from dataclasses import dataclass

from retoma_apps.media.services import WrittenFilmServices
from retoma_apps.providers.footage import Footage
from retoma_apps.videos.steps.writing.port import Writer


@dataclass(frozen=True, kw_only=True)
class Services(WrittenFilmServices[Writer]):
    footage: Footage

    @property
    def offline_services(self) -> tuple[str, ...]:
        return self.list_offline(footage=self.footage.is_offline)
