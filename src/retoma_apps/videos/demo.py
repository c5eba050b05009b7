"""The demo video: `retoma dev retoma_apps.videos --demo` orders it once.

It then reports how each video ends, including those ordered on the page.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable
from contextlib import suppress
from datetime import datetime
from uuid import UUID

from retoma import Client
from retoma.errors import RetomaError
from retoma.records import Run
from retoma.states import RunState
from retoma_apps.videos.channels import start_video
from retoma_apps.videos.models import Order
from retoma_apps.videos.overview import Overview, get_overview
from retoma_apps.videos.pages.listing import safe_link
from retoma_apps.videos.pipeline import longform
from retoma_apps.videos.services import Services

POLL_SECONDS = 1.0
ORDERS = {
    "pt": Order(topic="Como investir em renda fixa", language="pt-BR"),
    "en": Order(topic="How coffee is made", language="en"),
}
_ORDERED = {
    "pt": "O vídeo “{topic}” foi encomendado: {address}/videos/\n"
    "Ele espera por uma pessoa quatro vezes: no roteiro, na narração, nas imagens e no vídeo pronto.",
    "en": "The video “{topic}” was ordered: {address}/videos/\n"
    "It waits for your review four times: script, narration, footage and finished video.",
}
_ALREADY_ENDED = {
    "pt": "O vídeo “{topic}” já foi encomendado e terminou. Encomende outro: {address}/videos/?new=1",
    "en": "The video “{topic}” was ordered earlier and has ended. Order another: {address}/videos/?new=1",
}
_PUBLISHED = {"pt": "“{topic}” foi publicado: {url}", "en": "“{topic}” was published: {url}"}
_FAILED = {
    "pt": "“{topic}” falhou: {why}. Corrija a causa e retome aqui: {address}/runs/{run}",
    "en": "“{topic}” failed: {why}. Fix the cause and resume here: {address}/runs/{run}",
}
_ENDED = {
    "pt": "“{topic}” terminou sem ser publicado: {address}/runs/{run}",
    "en": "“{topic}” ended without being published: {address}/runs/{run}",
}
_OFFLINE = {
    "pt": "Offline, feito nesta máquina: {parts}. A página mostra quais variáveis mudam isso.",
    "en": "Offline, done on this machine: {parts}. The page shows which variables change this.",
}
_SERVICE_NAMES = {
    "writer": ("o texto", "the writing"),
    "speech": ("a voz (eSpeak)", "the voice (eSpeak)"),
    "footage": ("os clipes", "the footage"),
    "images": ("as imagens das capas", "the thumbnail images"),
    "youtube": ("o canal", "the channel"),
}


def create_demo(services: Services) -> Callable[[Client, str, str], AsyncIterator[str]]:
    """Return the function for `App(demo=...)`."""

    async def run_demo(client: Client, address: str, language: str) -> AsyncIterator[str]:
        topic = ORDERS[language].topic
        key, order = f"sample-{language}", ORDERS[language]
        run = await client.runs.find_by_key(key, longform, tenant=order.channel) or await start_video(
            client, order, key=key
        )
        message = _ALREADY_ENDED if (await client.runs.get(run)).is_over else _ORDERED
        reported = {video.id: video.ended_at for video in await _list_newest(client) if video.id != run}
        yield message[language].format(topic=topic, address=address) + _describe_offline(services, language)
        async for ended in _watch_endings(client, reported):
            yield _describe_ending(await get_overview(client, ended), address, language)

    return run_demo


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


def _describe_ending(video: Overview, address: str, language: str) -> str:
    url, run = safe_link(video.upload) or "", video.run
    message = _FAILED if run.state is RunState.FAILED else _PUBLISHED if url else _ENDED
    link = f"{address}{url}" if url.startswith("/") else url
    why = video.end.reason if video.end else run.state
    return message[language].format(topic=run.about, url=link, why=why, address=address, run=run.id)


def _describe_offline(services: Services, language: str) -> str:
    parts = ", ".join(_SERVICE_NAMES[part][language == "en"] for part in services.offline_services)
    return f"\n{_OFFLINE[language].format(parts=parts)}" if parts else ""
