"""All pages of videos, and where their templates, scripts and styles are."""

from __future__ import annotations

from pathlib import Path

from retoma.server import Page
from retoma.translations import N_
from retoma_apps.media.watch_pages import WatchPages
from retoma_apps.media.waveforms import WaveformPages
from retoma_apps.videos.operations.checkpoints import TYPES
from retoma_apps.videos.pages.batches import BatchPages
from retoma_apps.videos.pages.channels import ChannelPages
from retoma_apps.videos.pages.common import VideoPages
from retoma_apps.videos.pages.listing import VideoListPages
from retoma_apps.videos.pages.metrics import MetricsPage
from retoma_apps.videos.pages.reviews import WAVEFORM_URL
from retoma_apps.videos.services import Services

TEMPLATES = Path(__file__).parent / "templates"
STATIC = Path(__file__).parent / "static"
WATCH_URL = "/videos/channel/{id}"
REVIEW_TEMPLATES = {review: f"videos_{review}.html" for review in TYPES}
REVIEW_ASIDES = {
    "script_review": "videos_script_aside.html",
    "audio_review": "videos_costs_aside.html",
    "broll_review": "videos_costs_aside.html",
    "final_review": "videos_final_aside.html",
}


def create_pages(services: Services) -> list[Page]:
    kinds = (VideoListPages, BatchPages, ChannelPages, MetricsPage)
    watch = WatchPages(
        services.channel,
        WATCH_URL,
        "videos_watch.html",
        N_("This video does not exist here."),
        VideoPages().get_values,
    )
    waveforms = WaveformPages(services.files, WAVEFORM_URL)
    return [*(page for kind in kinds for page in kind().pages), *watch.pages, *waveforms.pages]
