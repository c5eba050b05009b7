"""What all pages of videos have: words, the time, and what is offline."""

from __future__ import annotations

from typing import Any

from retoma import Client
from retoma.server import PageContext
from retoma_apps.videos.pages.offline import offline_variables
from retoma_apps.videos.pages.words import Words
from retoma_apps.videos.pipeline import longform
from retoma_apps.videos.services import Services

RECENT = 100  # videos whose channels are known, whether or not they were set up


class PageSupport:
    def __init__(self, services: Services) -> None:
        self.services = services

    async def get_values(self, visit: PageContext) -> dict[str, Any]:
        say = Words(visit.language)
        return {
            "w": say,
            "now": await visit.client.now(),
            "offline": offline_variables(self.services),
            "said": say.said(visit.query.get("notice", "")),
        }

    async def list_channels(self, client: Client) -> list[str]:
        """Those that were set up, and those that have had a video of late."""
        recent = await client.runs.list(pipeline=longform.name, limit=RECENT, with_input=False)
        named = [*(each.tenant for each in await client.tenants.list_profiles()), *(run.tenant for run in recent)]
        return sorted(set(named), key=str.casefold) or ["principal"]
