"""Video channels: YouTube, its stand-in, and a channel in a local folder, behind one port."""

from retoma_apps.providers.youtube.errors import SessionGone
from retoma_apps.providers.youtube.local import LocalChannel, LocalVideo
from retoma_apps.providers.youtube.port import (
    Channel,
    Published,
    State,
    Status,
    VideoToPublish,
    is_mark,
    mark_of,
)
from retoma_apps.providers.youtube.settings import YouTubeSettings, is_account
from retoma_apps.providers.youtube.youtube import YouTube

__all__ = [
    "Channel",
    "LocalChannel",
    "LocalVideo",
    "Published",
    "SessionGone",
    "State",
    "Status",
    "VideoToPublish",
    "YouTube",
    "YouTubeSettings",
    "is_account",
    "is_mark",
    "mark_of",
]
