"""What this machine does instead of a service, and the variables that would change it."""

from __future__ import annotations

from retoma_apps.videos.services import Services

VARIABLES = {
    "writer": ("OPENROUTER_API_KEY",),
    "speech": ("AZURE_SPEECH_KEY", "ELEVENLABS_API_KEY"),
    "footage": ("PEXELS_API_KEY",),
    "images": ("IMAGES_API_KEY",),
    "youtube": ("YOUTUBE_CLIENT_ID", "YOUTUBE_CLIENT_SECRET", "YOUTUBE_REFRESH_TOKEN"),
}


def offline_variables(services: Services) -> dict[str, tuple[str, ...]]:
    """Return the variables by offline service."""
    return {what: VARIABLES[what] for what in services.offline_services}
