"""Moving pictures: Pexels, its stand-in, and clips that are drawn on this machine; one port for all."""

from retoma_apps.providers.footage.errors import (
    ClipUnavailable,
    ClipUnusable,
    FootageError,
    FootageRefused,
    InvalidAnswer,
)
from retoma_apps.providers.footage.matching import chosen, coverage, ranked, relevance
from retoma_apps.providers.footage.offline import Frames, OfflineFootage
from retoma_apps.providers.footage.pexels import Pexels, PexelsSettings
from retoma_apps.providers.footage.port import Footage, Found

__all__ = [
    "ClipUnavailable",
    "ClipUnusable",
    "Footage",
    "FootageError",
    "FootageRefused",
    "Found",
    "Frames",
    "InvalidAnswer",
    "OfflineFootage",
    "Pexels",
    "PexelsSettings",
    "chosen",
    "coverage",
    "ranked",
    "relevance",
]
