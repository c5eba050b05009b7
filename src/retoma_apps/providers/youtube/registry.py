"""The providers of video channels."""

from __future__ import annotations

from pathlib import Path

from retoma.connections import TenantConnections
from retoma_apps.providers.youtube.local import LocalChannel
from retoma_apps.providers.youtube.port import ChannelProvider, OpenChannel
from retoma_apps.providers.youtube.youtube import YouTube

PROVIDERS: tuple[type[ChannelProvider], ...] = (YouTube, LocalChannel)
"""In order of preference."""


def configured_providers(folder: Path, url: str, connections: TenantConnections | None = None) -> list[OpenChannel]:
    """Return the configured providers, in order of preference; the last one needs no configuration."""
    found = connections or TenantConnections()
    return [provider for each in PROVIDERS if (provider := each.for_tenant(found, folder, url)) is not None]
