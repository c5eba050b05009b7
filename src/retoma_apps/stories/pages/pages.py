"""All pages of stories, and where their templates and styles are."""

from __future__ import annotations

from pathlib import Path

from retoma.server import Page
from retoma.translations import N_
from retoma_apps.media.watch_pages import WatchPages
from retoma_apps.media.waveforms import WaveformPages
from retoma_apps.stories.pages.common import WATCH_URL, StoryPages
from retoma_apps.stories.pages.costs import CostPages
from retoma_apps.stories.pages.listing import StoryListPages
from retoma_apps.stories.pages.reviews import WAVEFORM_URL
from retoma_apps.stories.pages.story import StoryDetailPages
from retoma_apps.stories.services import Services

TEMPLATES = Path(__file__).parent / "templates"
STATIC = Path(__file__).parent / "static"


def create_pages(services: Services) -> list[Page]:
    kinds = (StoryListPages, CostPages, StoryDetailPages)
    watch = WatchPages(
        services.channel,
        WATCH_URL,
        "stories_watch.html",
        N_("This video does not exist here."),
        StoryPages().get_values,
    )
    waveforms = WaveformPages(services.files, WAVEFORM_URL)
    return [*(page for kind in kinds for page in kind().pages), *watch.pages, *waveforms.pages]
