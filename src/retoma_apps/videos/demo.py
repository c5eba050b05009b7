"""The video that is there to look at from the start: `retoma dev retoma_apps.videos --demo` orders it, once.

From then on it is told how each video ends, also of those that are ordered on the page.
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
    "pt": "O vídeo “{topic}” está encomendado: {address}/videos/\n"
    "Quatro vezes ele espera por uma pessoa: roteiro, narração, imagens e o vídeo pronto.",
    "en": "The video “{topic}” is ordered: {address}/videos/\n"
    "Four times it waits for a person: script, narration, footage, and the finished video.",
}
_ALREADY_ENDED = {
    "pt": "O vídeo “{topic}” foi encomendado antes e já terminou. Peça outro: {address}/videos/?new=1",
    "en": "The video “{topic}” was ordered before and is over. Order another: {address}/videos/?new=1",
}
_PUBLISHED = {"pt": "“{topic}” está publicado: {url}", "en": "“{topic}” is published: {url}"}
_FAILED = {
    "pt": "“{topic}” falhou: {why}. Corrija a causa e continue aqui: {address}/runs/{run}",
    "en": "“{topic}” failed: {why}. Mend the cause and continue here: {address}/runs/{run}",
}
_ENDED = {
    "pt": "“{topic}” terminou sem ser publicado: {address}/runs/{run}",
    "en": "“{topic}” ended without being published: {address}/runs/{run}",
}
_OFFLINE = {
    "pt": "Sem conexão, feito nesta máquina: {parts}. A página diz que variáveis mudam isso.",
    "en": "Offline, made on this machine: {parts}. The page says which variables change that.",
}
_SERVICE_NAMES = {
    "writer": ("o texto", "the writing"),
    "speech": ("a voz (eSpeak)", "the voice (eSpeak)"),
    "footage": ("as imagens em movimento", "the footage"),
    "images": ("as figuras", "the pictures"),
    "youtube": ("o canal", "the channel"),
}


def create_demo(services: Services) -> Callable[[Client, str, str], AsyncIterator[str]]:
    """For `App(demo=...)`."""

    async def order(client: Client, address: str, language: str) -> AsyncIterator[str]:
        topic = ORDERS[language].topic
        key, wanted = f"sample-{language}", ORDERS[language]
        run = await client.runs.find_by_key(key, longform, tenant=wanted.channel) or await start_video(
            client, wanted, key=key
        )
        said = _ALREADY_ENDED if (await client.runs.get(run)).is_over else _ORDERED
        told = {video.id: video.ended_at for video in await _list_newest(client) if video.id != run}
        yield said[language].format(topic=topic, address=address) + _describe_offline(services, language)
        async for ended in _watch_endings(client, told):
            yield _describe_ending(await get_overview(client, ended), address, language)

    return order


async def _watch_endings(client: Client, reported: dict[UUID, datetime | None]) -> AsyncIterator[Run]:
    """The newest videos, each time that one is over and was not `told`; one that failed may go on."""
    while True:
        with suppress(RetomaError):  # a database that restarts is no reason to stop looking
            for run in await _list_newest(client):
                if run.ended_at not in (None, reported.get(run.id)):
                    yield run
                reported[run.id] = run.ended_at
        await asyncio.sleep(POLL_SECONDS)


async def _list_newest(client: Client) -> list[Run]:
    return await client.runs.list(pipeline=longform.name)


def _describe_ending(video: Overview, address: str, language: str) -> str:
    url, run = safe_link(video.upload) or "", video.run
    said = _FAILED if run.state is RunState.FAILED else _PUBLISHED if url else _ENDED
    told = f"{address}{url}" if url.startswith("/") else url
    why = video.end.reason if video.end else run.state
    return said[language].format(topic=run.about, url=told, why=why, address=address, run=run.id)


def _describe_offline(services: Services, language: str) -> str:
    parts = ", ".join(_SERVICE_NAMES[part][language == "en"] for part in services.offline_services)
    return f"\n{_OFFLINE[language].format(parts=parts)}" if parts else ""
