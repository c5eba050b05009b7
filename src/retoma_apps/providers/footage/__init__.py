"""Stock footage: Pexels, its stand-in, and clips drawn on this machine, behind one port."""

from retoma_apps.providers.footage.errors import (
    ClipUnavailable,
    ClipUnusable,
    FootageError,
    FootageRefused,
    InvalidAnswer,
)
from retoma_apps.providers.footage.matching import choose_clip, coverage, rank_clips, relevance
from retoma_apps.providers.footage.offline import Frames, OfflineFootage
from retoma_apps.providers.footage.pexels import Pexels, PexelsSettings
from retoma_apps.providers.footage.port import Footage, FoundClip

__all__ = [
    "ClipUnavailable",
    "ClipUnusable",
    "Footage",
    "FootageError",
    "FootageRefused",
    "FoundClip",
    "Frames",
    "InvalidAnswer",
    "OfflineFootage",
    "Pexels",
    "PexelsSettings",
    "choose_clip",
    "coverage",
    "rank_clips",
    "relevance",
]
