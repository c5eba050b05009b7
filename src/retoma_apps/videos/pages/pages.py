"""All pages of videos, and where their templates, scripts and styles are."""

from __future__ import annotations

from pathlib import Path

from retoma.server import Page
from retoma_apps.videos.pages.channels import ChannelPages
from retoma_apps.videos.pages.common import PageSupport
from retoma_apps.videos.pages.listing import VideoListPages
from retoma_apps.videos.pages.metrics import MetricsPage
from retoma_apps.videos.pages.watch import WatchPages
from retoma_apps.videos.services import Services

TEMPLATES = Path(__file__).parent / "templates"
STATIC = Path(__file__).parent / "static"
WATCH_URL = "/videos/channel/{id}"
REVIEW_TEMPLATES = {
    "script_review": "videos_script_review.html",
    "audio_review": "videos_audio_review.html",
    "broll_review": "videos_broll_review.html",
    "final_review": "videos_final_review.html",
}


def create_pages(services: Services) -> list[Page]:
    common = PageSupport(services)
    return [
        *VideoListPages(common).pages,
        *ChannelPages(common).pages,
        *MetricsPage(common).pages,
        *WatchPages(common).pages,
    ]
