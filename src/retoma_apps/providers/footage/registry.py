"""The providers of footage."""

from __future__ import annotations

from retoma.connections import TenantConnections
from retoma_apps.providers.footage.offline import OfflineFootage
from retoma_apps.providers.footage.pexels import Pexels
from retoma_apps.providers.footage.port import Footage, FootageProvider

PROVIDERS: tuple[type[FootageProvider], ...] = (Pexels, OfflineFootage)
"""In order of preference."""


def configured_providers(connections: TenantConnections | None = None) -> list[Footage]:
    """Return the configured providers, in order of preference; the last one needs no configuration."""
    found = connections or TenantConnections()
    return [provider for each in PROVIDERS if (provider := each.for_tenant(found)) is not None]
