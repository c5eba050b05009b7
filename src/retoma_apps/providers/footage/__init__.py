"""Stock footage: Pexels, its stand-in, and clips drawn on this machine, behind one port."""

from retoma_apps.providers.footage.errors import ClipUnavailable, ClipUnusable
from retoma_apps.providers.footage.matching import choose_clip, coverage, rank_clips, relevance
from retoma_apps.providers.footage.port import Footage, FoundClip
from retoma_apps.providers.footage.registry import PROVIDERS, configured_providers
