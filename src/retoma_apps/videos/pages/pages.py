"""All pages of videos, and where their templates, scripts and styles are."""

from __future__ import annotations

from pathlib import Path

from retoma.server import Page
from retoma_apps.videos.pages.channels import Channels
from retoma_apps.videos.pages.common import Common
from retoma_apps.videos.pages.listing import Listing
from retoma_apps.videos.pages.metrics import Metrics
from retoma_apps.videos.pages.watching import Watching
from retoma_apps.videos.studio import Studio

TEMPLATES = Path(__file__).parent / "templates"
STATIC = Path(__file__).parent / "static"
WATCH_URL = "/videos/channel/{id}"
REVIEW_TEMPLATES = {
    "script_review": "videos_script_review.html",
    "audio_review": "videos_audio_review.html",
    "broll_review": "videos_broll_review.html",
    "final_review": "videos_final_review.html",
}


def pages_for(studio: Studio) -> list[Page]:
    common = Common(studio)
    return [
        *Listing(common).pages,
        *Channels(common).pages,
        *Metrics(common).pages,
        *Watching(common).pages,
    ]
