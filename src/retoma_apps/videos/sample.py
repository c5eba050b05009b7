"""The video that is there to look at from the start: `retoma dev retoma_apps.videos --demo` orders it, once."""

from __future__ import annotations

from collections.abc import Awaitable, Callable

from retoma import Client
from retoma_apps.videos.channels import ordered
from retoma_apps.videos.models import Order
from retoma_apps.videos.studio import Studio

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


def sample(studio: Studio) -> Callable[[Client, str, str], Awaitable[str]]:
    """For `App(demo=...)`."""

    async def order(client: Client, address: str, language: str) -> str:
        wanted = ORDERS[language]
        await ordered(client, wanted, key=f"sample-{language}")
        return _SAID[language].format(topic=wanted.topic, address=address) + _offline(studio, language)

    return order


def _offline(studio: Studio, language: str) -> str:
    parts = ", ".join(_PARTS[part][language == "en"] for part in studio.offline)
    return f"\n{_OFFLINE[language].format(parts=parts)}" if parts else ""
