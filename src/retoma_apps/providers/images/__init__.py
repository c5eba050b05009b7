"""Image generation: OpenAI-compatible services, their stand-in, and shapes drawn on this machine, behind one port."""

from retoma_apps.providers.images.errors import ImageError, ImageRefused, ImageUnavailable, InvalidImage
from retoma_apps.providers.images.offline import OfflineImages
from retoma_apps.providers.images.openai import OpenAiImages, OpenAiImagesSettings
from retoma_apps.providers.images.port import Images

__all__ = [
    "ImageError",
    "ImageRefused",
    "ImageUnavailable",
    "Images",
    "InvalidImage",
    "OfflineImages",
    "OpenAiImages",
    "OpenAiImagesSettings",
]
