"""Video channels: YouTube, its stand-in, and a channel in a local folder, behind one port."""

from retoma_apps.providers.youtube.consent import CONNECTION
from retoma_apps.providers.youtube.errors import SessionGone
from retoma_apps.providers.youtube.local import LocalChannel, LocalVideo
from retoma_apps.providers.youtube.port import (
    Channel,
    LocalizedTexts,
    OpenChannel,
    Published,
    VideoToPublish,
    is_mark,
    mark_of,
)
from retoma_apps.providers.youtube.registry import PROVIDERS, configured_providers
