"""How a script is split for voices with and without word timings."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any
from uuid import UUID

import pytest

from retoma.store.database import Database
from retoma_apps.media import speaking
from retoma_apps.media.narration import Joined
from retoma_apps.providers.speech import SpokenAudio, Word
from retoma_apps.videos.steps import narration
from retoma_apps.videos.steps.narration import generate_narration
from tests.apps.videos.fast_video_app import FastVideoApp, running_fast_video_app
from tests.conftest import empty_database

SCENES = [
    [
        "Com a Selic a 14,75% ao ano, R$ 250.000,00 rendem bem, e o Sr. Silva sabe disso há muito tempo.",
        "Não é pouco o que ele ganha por mês com esse dinheiro.",
        "E você, o que faria com tanto dinheiro guardado em casa?",
    ],
    ["Comece hoje mesmo, com pouco, e veja o que acontece daqui a dez anos."],
]
SENTENCES = [sentence for scene in SCENES for sentence in scene]
PIECE = 5.0


@dataclass
class Voice:
    """Speaks at 150 words per minute; `has_word_times` if it returns word timings. One call fails."""

    name: str
    has_word_times: bool
    is_offline = False
    max_characters = 5_000
    breaks_at: int = 0
    asked: list[str] = field(default_factory=list)

    async def say(self, text: str, *, voice: str, language: str, rate: float = 1.0) -> SpokenAudio:
        self.asked.append(text)
        if len(self.asked) == self.breaks_at:
            raise OSError("the line broke")
        words = text.split()
        outcomes = [Word(word, at * 0.4, at * 0.4 + 0.4) for at, word in enumerate(words)]
        return SpokenAudio(text.encode(), len(words) * 0.4, tuple(outcomes) if self.has_word_times else ())

    async def close(self) -> None: ...


@pytest.fixture
def voices() -> dict[str, Voice]:
    return {"azure": Voice("azure", has_word_times=False), "espeak": Voice("espeak", has_word_times=True)}


@pytest.fixture
async def video_app(
    database: Database, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, voices: dict[str, Voice]
) -> AsyncIterator[FastVideoApp]:
    """Narrates as in production; every piece lasts five seconds, whatever its text."""
    await empty_database(database)
    async with running_fast_video_app(database, tmp_path, monkeypatch, voices=voices) as made:
        monkeypatch.setattr(narration, "generate_narration", generate_narration)
        monkeypatch.setattr(speaking, "join", join_sounds)
        yield made


async def join_sounds(sounds: Sequence[bytes], to: Path, **_: Any) -> Joined:
    await asyncio.to_thread(to.write_bytes, b"".join(sounds))
    starts = tuple(at * (PIECE + 1) for at in range(len(sounds)))
    return Joined(starts[-1] + PIECE, starts, tuple(at + PIECE for at in starts))


async def work_until_narration(video_app: FastVideoApp, voice: str) -> dict[str, Any]:
    """Work until the narration of our scenes waits for review, and return it."""
    return await video_app.work_until_review(await order_with_scenes(video_app, voice))


async def order_with_scenes(video_app: FastVideoApp, voice: str) -> str:
    """Order a video whose script is our scenes."""
    await video_app.client.tenants.set_profile("financas", {"seconds": 25, "voice": voice})
    script = await video_app.order_until("script_review")
    written = (await video_app.client.runs.get_results(UUID(script["video_id"])))["script_generation"]
    scenes = [{"text": " ".join(scene), "visual": "moedas"} for scene in SCENES]
    await video_app.approve(script, value={**written, "scenes": scenes})
    return str(script["video_id"])


async def test_a_voice_without_word_timings_speaks_each_sentence_separately(
    video_app: FastVideoApp, voices: dict[str, Voice]
) -> None:
    lines = (await work_until_narration(video_app, "azure_pt_br_antonio"))["data"]["lines"]
    assert voices["azure"].asked == SENTENCES
    begins = {line["start"]: " ".join(line["text"].split()) for line in lines}
    for number, sentence in enumerate(SENTENCES):
        assert sentence.startswith(begins[number * (PIECE + 1)])


async def test_sentences_spoken_separately_cost_the_same_as_their_scene(video_app: FastVideoApp) -> None:
    audio = await work_until_narration(video_app, "azure_pt_br_antonio")
    charges = await video_app.client.costs.list_charges(UUID(audio["video_id"]))
    paid = sum(one.units for one in charges if one.step == "audio_generation")
    assert paid == sum(map(len, SENTENCES)) <= sum(len(" ".join(scene)) for scene in SCENES)


async def test_a_voice_with_word_timings_speaks_a_whole_scene(
    video_app: FastVideoApp, voices: dict[str, Voice]
) -> None:
    await work_until_narration(video_app, "espeak_pt_br")
    assert voices["espeak"].asked == [" ".join(scene) for scene in SCENES]


async def test_a_narration_started_by_scenes_is_redone_by_sentences(
    video_app: FastVideoApp, voices: dict[str, Voice], monkeypatch: pytest.MonkeyPatch
) -> None:
    voices["azure"].breaks_at = 2
    video = await order_with_scenes(video_app, "azure_pt_br_antonio")
    with monkeypatch.context() as before:
        before.setattr(voices["azure"], "has_word_times", True)
        await video_app.work()
    assert voices["azure"].asked == [" ".join(scene) for scene in SCENES]
    await video_app.api.sandbox.work()
    await video_app.work_until_review(video)
    assert voices["azure"].asked[len(SCENES) :] == SENTENCES
