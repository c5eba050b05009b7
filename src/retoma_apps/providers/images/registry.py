"""The providers of images."""

from __future__ import annotations

from retoma.connections import TenantConnections
from retoma_apps.providers.images.offline import OfflineImages
from retoma_apps.providers.images.openai import FallbackImages, OpenAiImages
from retoma_apps.providers.images.port import Images, ImagesProvider

PROVIDERS: tuple[type[ImagesProvider], ...] = (OpenAiImages, FallbackImages, OfflineImages)
"""In order of preference."""


def configured_providers(connections: TenantConnections | None = None) -> list[Images]:
    """Return the configured providers, in order of preference; the last one needs no configuration."""
    found = connections or TenantConnections()
    return [provider for each in PROVIDERS if (provider := each.for_tenant(found)) is not None]
