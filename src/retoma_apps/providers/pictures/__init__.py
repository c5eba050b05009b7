"""Animated pictures that show what is said: diagrams, steps, charts, timelines and large icons, drawn from data."""

from retoma_apps.providers.pictures.animation import VARIANTS, Animation, Scene, draw_cover, find_cues
from retoma_apps.providers.pictures.models import Item, Picture, Theme
