"""Long-form videos: from a topic to a published video, with four reviews on the way.

retoma serve retoma_apps.videos
retoma worker retoma_apps.videos
"""

from __future__ import annotations

from retoma_apps.lazy_app import lazy_app

__getattr__ = lazy_app(__name__)
