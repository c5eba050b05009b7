"""Image generation: OpenAI-compatible services, their stand-in, and shapes drawn on this machine, behind one port."""

from retoma_apps.providers.images.port import Images
from retoma_apps.providers.images.registry import PROVIDERS, configured_providers
