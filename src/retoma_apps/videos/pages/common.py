"""What all pages of videos share: the services, and the values that all templates use."""

from __future__ import annotations

from typing import Any

from retoma import Client
from retoma.server import PageContext
from retoma_apps.videos.pages import messages
from retoma_apps.videos.pages.forms import list_voice_forms
from retoma_apps.videos.pipeline import longform
from retoma_apps.videos.services import Services

RECENT = 100  # recent videos whose channels are listed even if they were not set up


class VideoPages:
    async def get_services(self, context: PageContext, channel: str | None = None) -> Services:
        """Return the services of a channel; without one, those of channels without connections of their own."""
        services: Services = await context.client.get_resource("services", tenant=channel)
        return services

    async def get_values(self, context: PageContext) -> dict[str, Any]:
        notice = context.query.get("notice", "")
        services = await self.get_services(context)
        voice_forms = ", ".join(list_voice_forms(services.voices))
        return {
            "stage_name": lambda stage: context.translate(messages.STAGE_NAMES[stage]),
            "field_label": lambda name: context.translate(messages.FIELD_LABELS[name]),
            "field_hint": lambda name: context.translate(messages.FIELD_HINTS[name], voice_forms=voice_forms),
            "language_name": lambda language: context.translate(messages.LANGUAGE_NAMES[language]),
            "offline_name": lambda service: context.translate(messages.OFFLINE_NAMES[service]),
            "offline_sentence": lambda service: context.translate(messages.OFFLINE_SENTENCES[service]),
            "now": await context.client.now(),
            "offline": services.offline_variables,
            # The address names it, and anyone can write an address.
            "own_notice": context.translate(messages.NOTICES[notice]) if notice in messages.NOTICES else None,
        }

    async def list_channels(self, client: Client) -> list[str]:
        """List the channels that were set up and those with recent videos."""
        recent = await client.runs.list(pipeline=longform.name, limit=RECENT, with_input=False)
        named = [*(each.tenant for each in await client.tenants.list_profiles()), *(run.tenant for run in recent)]
        return sorted(set(named), key=str.casefold) or ["principal"]
