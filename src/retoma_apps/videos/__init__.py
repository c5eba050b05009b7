"""Long-form videos: from a topic to a published video, with four reviews on the way.

retoma serve retoma_apps.videos
retoma worker retoma_apps.videos
"""

from __future__ import annotations

from typing import Any


def __getattr__(name: str) -> Any:
    """Create `app` on first access, so parts of it can be imported without all of it."""
    if name != "app":
        raise AttributeError(name)
    from retoma_apps.videos.application import from_environment

    app = globals()["app"] = from_environment()
    return app
