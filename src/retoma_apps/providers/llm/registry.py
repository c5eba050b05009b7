"""The providers of language models."""

from __future__ import annotations

from retoma_apps.providers.llm.openrouter import OpenRouter
from retoma_apps.providers.llm.port import Llm, LlmProvider

PROVIDERS: tuple[type[LlmProvider], ...] = (OpenRouter,)
"""In order of preference."""


def configured_providers() -> list[Llm]:
    """Return the configured providers, in order of preference; possibly none."""
    return [provider for each in PROVIDERS if (provider := each.from_environment()) is not None]
