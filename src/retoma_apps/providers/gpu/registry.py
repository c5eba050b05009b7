"""The providers of GPU hosts."""

from __future__ import annotations

from retoma import Settings
from retoma.files import FileSettings
from retoma_apps.providers.gpu.local import LocalHost
from retoma_apps.providers.gpu.port import GpuHost, GpuHostProvider
from retoma_apps.providers.gpu.runpod import RunPodHost

PROVIDERS: tuple[type[GpuHostProvider], ...] = (RunPodHost, LocalHost)
"""In order of preference."""


def configured_providers(settings: Settings, files: FileSettings) -> list[GpuHost]:
    """Return the configured providers, in order of preference; the last one needs no configuration."""
    return [provider for each in PROVIDERS if (provider := each.from_environment(settings, files)) is not None]
