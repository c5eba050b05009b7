"""The providers of video channels."""

from __future__ import annotations

from pathlib import Path

from retoma_apps.providers.youtube.local import LocalChannel
from retoma_apps.providers.youtube.port import ChannelProvider, OpenChannel
from retoma_apps.providers.youtube.youtube import YouTube

PROVIDERS: tuple[type[ChannelProvider], ...] = (YouTube, LocalChannel)
"""In order of preference."""


def configured_providers(folder: Path, url: str) -> list[OpenChannel]:
    """Return the configured providers, in order of preference; the last one needs no configuration."""
    return [provider for each in PROVIDERS if (provider := each.from_environment(folder, url)) is not None]
