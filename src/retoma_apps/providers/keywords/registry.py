"""The providers of keywords."""

from __future__ import annotations

from retoma_apps.providers.keywords.dataforseo import DataForSeo
from retoma_apps.providers.keywords.offline import OfflineKeywords
from retoma_apps.providers.keywords.port import KeywordProvider, RegisteredKeywords

PROVIDERS: tuple[type[RegisteredKeywords], ...] = (DataForSeo, OfflineKeywords)
"""In order of preference."""


def configured_providers() -> list[KeywordProvider]:
    """Return the configured providers, in order of preference; the last one needs no configuration."""
    return [provider for each in PROVIDERS if (provider := each.from_environment()) is not None]
