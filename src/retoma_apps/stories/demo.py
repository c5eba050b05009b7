"""The demo story: `retoma dev retoma_apps.stories --demo` orders it once. It ends ready for review."""

from __future__ import annotations

from collections.abc import AsyncIterator

from retoma import Client
from retoma.translations import N_
from retoma_apps.stories.models import Order
from retoma_apps.stories.operations.stories import order_story
from retoma_apps.stories.pages.common import HOME
from retoma_apps.stories.pages.messages import create_translator
from retoma_apps.stories.pipeline import story
from retoma_apps.stories.services import Services

ORDERS = {
    "pt": Order(topic="Como funciona a fotossíntese", scenes=9, languages=["en"]),
    "en": Order(topic="How photosynthesis works", scenes=9, languages=["pt-BR"]),
}
_ORDERED = N_(
    "The story “%(topic)s” was ordered, with subtitles in two languages: %(url)s\n"
    "Its scenes are drawn, narrated and translated in parallel. Then you can publish it."
)


async def run_demo(services: Services, client: Client, address: str, language: str) -> AsyncIterator[str]:
    """Order the story once, and report it. The terminal announces its review, as every review."""
    key, order = f"sample-{language}", ORDERS[language]
    run = await client.runs.find_by_key(key, story, tenant=order.channel) or await order_story(
        client, order, services.writer, key=key
    )
    yield create_translator(language).gettext(_ORDERED, topic=order.topic, url=f"{address}{HOME}{run}")
