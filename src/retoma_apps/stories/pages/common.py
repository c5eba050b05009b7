"""What all pages of stories share: the services, and the values that all templates use."""

from __future__ import annotations

from typing import Any

from retoma.server import PageContext
from retoma_apps.stories.models import Upload
from retoma_apps.stories.pages import messages
from retoma_apps.stories.pages.badges import STATUS_BADGES
from retoma_apps.stories.services import Services

HOME = "/storyboard/"
WATCH_URL = f"{HOME}channel/{{id}}"


class StoryPages:
    async def get_services(self, context: PageContext, channel: str | None = None) -> Services:
        """Return the services of a channel; without one, those of channels without connections of their own."""
        services: Services = await context.client.get_resource("services", tenant=channel)
        return services

    async def get_values(self, context: PageContext) -> dict[str, Any]:
        notice = context.query.get("notice", "")
        return {
            "badges": STATUS_BADGES,
            "status_name": lambda status: context.translate(messages.STATUS_NAMES[status]),
            "part_name": lambda step: context.translate(messages.PART_NAMES[step]),
            "field_label": lambda name: context.translate(messages.FIELD_LABELS[name]),
            "field_hint": lambda name: context.translate(messages.FIELD_HINTS[name]),
            "offline_name": lambda service: context.translate(messages.OFFLINE_NAMES[service]),
            "offline_sentence": lambda service: context.translate(messages.OFFLINE_SENTENCES[service]),
            "now": await context.client.now(),
            "offline": (await self.get_services(context)).offline_variables,
            "safe_link": get_safe_link,
            # The address names it, and anyone can write an address.
            "own_notice": context.translate(messages.NOTICES[notice]) if notice in messages.NOTICES else None,
        }


def get_safe_link(upload: Upload | None) -> str | None:
    """Return the video's address if it is HTTPS or a local page: a provider's text is not trusted."""
    return find_safe_url(upload.url) if upload else None


def find_safe_url(url: str) -> str | None:
    return url if url.startswith(("https://", f"{HOME}channel/")) else None
