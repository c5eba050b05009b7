"""The providers of language models."""

from __future__ import annotations

from retoma.connections import TenantConnections
from retoma_apps.providers.llm.openrouter import OpenRouter
from retoma_apps.providers.llm.port import Llm, LlmProvider

PROVIDERS: tuple[type[LlmProvider], ...] = (OpenRouter,)
"""In order of preference."""


def configured_providers(connections: TenantConnections | None = None) -> list[Llm]:
    """Return the configured providers, in order of preference; possibly none."""
    found = connections or TenantConnections()
    return [provider for each in PROVIDERS if (provider := each.for_tenant(found)) is not None]
