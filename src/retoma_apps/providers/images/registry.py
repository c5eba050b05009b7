"""The providers of images."""

from __future__ import annotations

from retoma_apps.providers.images.offline import OfflineImages
from retoma_apps.providers.images.openai import FallbackImages, OpenAiImages
from retoma_apps.providers.images.port import Images, ImagesProvider

PROVIDERS: tuple[type[ImagesProvider], ...] = (OpenAiImages, FallbackImages, OfflineImages)
"""In order of preference."""


def configured_providers() -> list[Images]:
    """Return the configured providers, in order of preference; the last one needs no configuration."""
    return [provider for each in PROVIDERS if (provider := each.from_environment()) is not None]
