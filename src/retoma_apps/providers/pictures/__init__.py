"""Animated pictures that show what is said: diagrams, steps, charts, timelines and large icons, drawn from data."""

from retoma_apps.providers.pictures.animation import (
    LAST_PAUSE_SECONDS,
    PAUSE_SECONDS,
    VARIANTS,
    Animation,
    Scene,
    find_cues,
)
from retoma_apps.providers.pictures.clips import write_clip
from retoma_apps.providers.pictures.covers import draw_cover
from retoma_apps.providers.pictures.models import Item, Picture, Theme
