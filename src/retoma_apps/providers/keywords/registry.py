"""The providers of keywords."""

from __future__ import annotations

from retoma.connections import TenantConnections
from retoma_apps.providers.keywords.dataforseo import DataForSeo
from retoma_apps.providers.keywords.offline import OfflineKeywords
from retoma_apps.providers.keywords.port import KeywordProvider, RegisteredKeywords

PROVIDERS: tuple[type[RegisteredKeywords], ...] = (DataForSeo, OfflineKeywords)
"""In order of preference."""


def configured_providers(connections: TenantConnections | None = None) -> list[KeywordProvider]:
    """Return the configured providers, in order of preference; the last one needs no configuration."""
    found = connections or TenantConnections()
    return [provider for each in PROVIDERS if (provider := each.for_tenant(found)) is not None]
