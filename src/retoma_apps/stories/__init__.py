"""Narrated stories: from a topic to a film of drawn scenes with translated subtitles, which a person publishes.

retoma serve retoma_apps.stories
retoma worker retoma_apps.stories
"""

from __future__ import annotations

from retoma_apps.lazy_app import lazy_app

__getattr__ = lazy_app(__name__)
