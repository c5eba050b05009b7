"""The models that an application asks, in order of preference."""

from __future__ import annotations

import re
from dataclasses import dataclass

from retoma.connections import TenantConnections
from retoma_apps.providers.llm.port import Llm
from retoma_apps.providers.llm.registry import configured_providers


@dataclass(frozen=True)
class LanguageModel:
    """A provider and the model to ask there. Charges name both. `follows_notes` if it follows free-form notes."""

    provider: Llm
    model: str
    follows_notes: bool = True

    @property
    def name(self) -> str:
        """Return how a chain, its circuit breakers and its attempts name it, such as `openrouter-openai-gpt-5-mini`."""
        return make_model_name(self.provider.name, self.model)


def make_model_name(provider: str, model: str) -> str:
    return re.sub(r"[^A-Za-z0-9_.]+", "-", f"{provider}-{model}")


def configured_models(model: str, fallbacks: str, connections: TenantConnections | None = None) -> list[LanguageModel]:
    """Return the model, and those that replace it if it fails (a comma list), at the configured provider; none without
    a provider."""
    models = dict.fromkeys([model, *split_models(fallbacks)])
    return [LanguageModel(provider, each) for provider in configured_providers(connections)[:1] for each in models]


def split_models(models: str) -> list[str]:
    return [each.strip() for each in models.split(",") if each.strip()]
