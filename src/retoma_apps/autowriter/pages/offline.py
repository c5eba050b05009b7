"""What this machine does instead of a service, and the variables that would change it."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from retoma_apps.providers import images, keywords, llm, wordpress
from retoma_apps.providers.chains import get_first_provider

_PROVIDERS = {
    "llm": llm.PROVIDERS,
    "keywords": keywords.PROVIDERS,
    "images": images.PROVIDERS[:1],  # the second one only replaces the first
    "open_blog": wordpress.PROVIDERS,
}

CONNECTED = tuple(_PROVIDERS)
"""The resources that connections or the environment configure."""


def list_offline_variables(resources: Mapping[str, Any]) -> dict[str, tuple[str, ...]]:
    """Return the variables that would configure a service, by the resource that this machine replaces."""
    return {
        name: tuple(variable for each in known for variable in each.variables)
        for name, known in _PROVIDERS.items()
        if _is_offline(name, resources[name])
    }


def _is_offline(name: str, resource: Any) -> bool:
    provider = get_first_provider(resource)
    if name == "llm":
        provider = provider.provider
    return bool((provider("") if name == "open_blog" else provider).is_offline)
