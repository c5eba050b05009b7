"""What this machine does instead of a service, and the variables that would change it."""

from __future__ import annotations

from collections.abc import Sequence

from retoma_apps.providers import footage, images, llm, speech, youtube
from retoma_apps.providers.provider import Provider
from retoma_apps.videos.services import Services

_PROVIDERS: dict[str, Sequence[type[Provider]]] = {
    "writer": llm.PROVIDERS,
    "speech": speech.PROVIDERS,
    "footage": footage.PROVIDERS,
    "images": images.PROVIDERS,
    "youtube": youtube.PROVIDERS,
}
VARIABLES = {what: tuple(name for each in known for name in each.variables) for what, known in _PROVIDERS.items()}


def offline_variables(services: Services) -> dict[str, tuple[str, ...]]:
    """Return the variables by offline service."""
    return {what: VARIABLES[what] for what in services.offline_services}
