"""The demo video: `retoma dev retoma_apps.videos --demo` orders it once.

It then reports how each video ends, including those ordered on the page.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import suppress
from datetime import datetime
from uuid import UUID

from retoma import Client
from retoma.errors import RetomaError
from retoma.records import Run
from retoma.states import RunState
from retoma.translations import N_, Translator
from retoma_apps.videos.models import Order
from retoma_apps.videos.operations.channels import start_video
from retoma_apps.videos.operations.overview import Overview, get_overview
from retoma_apps.videos.pages.listing import safe_link
from retoma_apps.videos.pages.messages import create_translator
from retoma_apps.videos.pipeline import longform
from retoma_apps.videos.services import Services

POLL_SECONDS = 1.0
ORDERS = {
    "pt": Order(topic="Como investir em renda fixa", language="pt-BR"),
    "en": Order(topic="How coffee is made", language="en"),
}
_ORDERED = N_(
    "The video “%(topic)s” was ordered: %(address)s/videos/\n"
    "It waits for your review four times: script, narration, footage and finished video."
)
_ALREADY_ENDED = N_("The video “%(topic)s” was ordered earlier and has ended. Order another: %(address)s/videos/?new=1")
_PUBLISHED = N_("“%(topic)s” was published: %(url)s")
_FAILED = N_("“%(topic)s” failed: %(why)s. Fix the cause and resume here: %(address)s/runs/%(run)s")
_ENDED = N_("“%(topic)s” ended without being published: %(address)s/runs/%(run)s")
_OFFLINE = N_("Offline, done on this machine: %(parts)s. The page shows which variables change this.")
_SERVICE_NAMES = {
    "writer": N_("the writing"),
    "speech": N_("the voice (eSpeak)"),
    "footage": N_("the footage"),
    "images": N_("the thumbnail images"),
    "youtube": N_("the channel"),
}


async def run_demo(services: Services, client: Client, address: str, language: str) -> AsyncIterator[str]:
    topic = ORDERS[language].topic
    key, order = f"sample-{language}", ORDERS[language]
    run = await client.runs.find_by_key(key, longform, tenant=order.channel) or await start_video(
        client, order, services.writer, key=key
    )
    message = _ALREADY_ENDED if (await client.runs.get(run)).is_over else _ORDERED
    reported = {video.id: video.ended_at for video in await _list_newest(client) if video.id != run}
    translator = create_translator(language)
    yield translator.gettext(message, topic=topic, address=address) + _describe_offline(services, translator)
    async for ended in _watch_endings(client, reported):
        yield _describe_ending(await get_overview(client, ended), address, translator)


async def _watch_endings(client: Client, reported: dict[UUID, datetime | None]) -> AsyncIterator[Run]:
    """Yield each of the newest videos when it has ended and is not in `reported`; a failed one may be resumed."""
    while True:
        with suppress(RetomaError):  # keep watching while the database restarts
            for run in await _list_newest(client):
                if run.ended_at not in (None, reported.get(run.id)):
                    yield run
                reported[run.id] = run.ended_at
        await asyncio.sleep(POLL_SECONDS)


async def _list_newest(client: Client) -> list[Run]:
    return await client.runs.list(pipeline=longform.name)


def _describe_ending(video: Overview, address: str, translator: Translator) -> str:
    url, run = safe_link(video.upload) or "", video.run
    message = _FAILED if run.state is RunState.FAILED else _PUBLISHED if url else _ENDED
    link = f"{address}{url}" if url.startswith("/") else url
    why = video.end.reason if video.end else run.state
    return translator.gettext(message, topic=run.about, url=link, why=why, address=address, run=run.id)


def _describe_offline(services: Services, translator: Translator) -> str:
    parts = ", ".join(translator.gettext(_SERVICE_NAMES[part]) for part in services.offline_services)
    return f"\n{translator.gettext(_OFFLINE, parts=parts)}" if parts else ""
