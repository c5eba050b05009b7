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
from retoma_apps.videos.channels import ordered
from retoma_apps.videos.models import Order
from retoma_apps.videos.overview import Overview, overview_of
from retoma_apps.videos.pages.listing import link_of
from retoma_apps.videos.pipeline import longform
from retoma_apps.videos.studio import Studio

SECONDS_BETWEEN_LOOKS = 1.0
ORDERS = {
    "pt": Order(topic="Como investir em renda fixa", language="pt-BR"),
    "en": Order(topic="How coffee is made", language="en"),
}
_SAID = {
    "pt": "O vídeo “{topic}” está encomendado: {address}/videos/\n"
    "Quatro vezes ele espera por uma pessoa: roteiro, narração, imagens e o vídeo pronto.",
    "en": "The video “{topic}” is ordered: {address}/videos/\n"
    "Four times it waits for a person: script, narration, footage, and the finished video.",
}
_BEFORE = {
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
_PARTS = {
    "writer": ("o texto", "the writing"),
    "speech": ("a voz (eSpeak)", "the voice (eSpeak)"),
    "footage": ("as imagens em movimento", "the footage"),
    "images": ("as figuras", "the pictures"),
    "youtube": ("o canal", "the channel"),
}


def sample(studio: Studio) -> Callable[[Client, str, str], AsyncIterator[str]]:
    """For `App(demo=...)`."""

    async def order(client: Client, address: str, language: str) -> AsyncIterator[str]:
        topic = ORDERS[language].topic
        key, wanted = f"sample-{language}", ORDERS[language]
        run = await client.started_by(key, longform, tenant=wanted.channel) or await ordered(client, wanted, key=key)
        said = _BEFORE if (await client.show(run)).is_over else _SAID
        told = {video.id: video.ended_at for video in await _newest(client) if video.id != run}
        yield said[language].format(topic=topic, address=address) + _offline(studio, language)
        async for ended in _ends(client, told):
            yield _ended(await overview_of(client, ended), address, language)

    return order


async def _ends(client: Client, told: dict[UUID, datetime | None]) -> AsyncIterator[Run]:
    """The newest videos, each time that one is over and was not `told`; one that failed may go on."""
    while True:
        with suppress(RetomaError):  # a database that restarts is no reason to stop looking
            for run in await _newest(client):
                if run.ended_at not in (None, told.get(run.id)):
                    yield run
                told[run.id] = run.ended_at
        await asyncio.sleep(SECONDS_BETWEEN_LOOKS)


async def _newest(client: Client) -> list[Run]:
    return await client.runs(pipeline=longform.name)


def _ended(video: Overview, address: str, language: str) -> str:
    url, run = link_of(video.upload) or "", video.run
    said = _FAILED if run.state is RunState.FAILED else _PUBLISHED if url else _ENDED
    told = f"{address}{url}" if url.startswith("/") else url
    why = video.end.said if video.end else run.state
    return said[language].format(topic=run.about, url=told, why=why, address=address, run=run.id)


def _offline(studio: Studio, language: str) -> str:
    parts = ", ".join(_PARTS[part][language == "en"] for part in studio.offline)
    return f"\n{_OFFLINE[language].format(parts=parts)}" if parts else ""
