"""Stories behind their routes, with a manual worker. Every file is a few bytes that describe its inputs."""

from __future__ import annotations

from collections import Counter
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any
from uuid import UUID

import httpx2
import pytest

from retoma import Context
from retoma.files import FileSettings, create_file_store
from retoma.store.database import Database
from retoma_apps.media.assembly import Film as AssembledFilm
from retoma_apps.media.models import Line
from retoma_apps.media.narration import Joined
from retoma_apps.providers.speech.espeak import Espeak
from retoma_apps.providers.youtube import LocalChannel
from retoma_apps.stories.application import make_app
from retoma_apps.stories.models import Brief, Metadata, Scene, SceneAudio, Texts, Thumbnail, Thumbnails
from retoma_apps.stories.services import Services
from retoma_apps.stories.steps import film, scenes
from retoma_apps.stories.steps.writing.bundled import BundledStoryWriter
from tests.server.api import Api, an_api

TOPIC = "How coffee is made"
SIZE = (320, 180)


class FreeWriter(BundledStoryWriter):
    """Writes as many scenes as ordered about any topic, and translates to any language."""

    topics = None

    def __init__(self) -> None:
        self.scenes: int | None = None
        self.failures: dict[str, list[BaseException]] = {}
        self.translated: Counter[tuple[str, str]] = Counter()

    async def script(self, brief: Brief, **_: Any) -> list[Scene]:
        self.fail("script")
        count = brief.scenes if self.scenes is None else self.scenes
        return [
            Scene(
                id=str(number), text=f"Sentence {number} on {brief.topic}.", visual=f"picture {number}. {brief.topic}"
            )
            for number in range(1, count + 1)
        ]

    async def translate(self, brief: Brief, scene: Scene, language: str, **_: Any) -> str:
        self.fail(f"translation {scene.id}")
        self.translated[scene.id, language] += 1
        return f"{scene.text} ({language}, version {self.translated[scene.id, language]})"

    async def metadata(self, brief: Brief, scenes: Sequence[Scene], **_: Any) -> Metadata:
        self.fail("metadata")
        localizations = {each: Texts(title=f"{brief.topic} ({each})") for each in brief.languages}
        return Metadata(title=brief.topic, description="About it.", tags=["tea"], localizations=localizations)

    def fail(self, what: str) -> None:
        if left := self.failures.get(what):
            raise left.pop(0)


@dataclass
class Painter:
    """Draws each prompt as text. `failures` are errors by prompt prefix, one per attempt."""

    name = "offline"
    is_offline = True
    follows_notes = False
    model = "text"
    prompts: list[str] = field(default_factory=list)
    failures: dict[str, list[BaseException]] = field(default_factory=dict)

    async def make(self, prompt: str, *, width: int, height: int) -> bytes:
        self.prompts.append(prompt)
        for prefix, left in self.failures.items():
            if prompt.startswith(prefix) and left:
                raise left.pop(0)
        return prompt.encode()


async def fake_voice(scene: Scene, voice: str, language: str, services: Services, ctx: Context) -> SceneAudio:
    ctx.charge("offline", "voice", units=len(scene.text))
    audio = await ctx.save_file(f"{scene.text} {ctx.revision}".encode(), f"scene-{scene.id}.wav")
    return SceneAudio(audio=audio, seconds=2.0, lines=[Line(text=scene.text, start=0, end=1.5)])


async def fake_still(source: Path, to: Path, zoom: str, form: Any) -> None:
    write(to, [source], b" moving")


async def fake_join(pieces: Sequence[bytes], to: Path, **_: Any) -> Joined:
    write(to, [], b"|".join(pieces))
    return Joined(float(len(pieces)), (), ())


async def fake_clips(clips: Sequence[Path], narration: Path, to: Path, *, size: tuple[int, int]) -> AssembledFilm:
    return AssembledFilm(2.7 * len(clips), *size, write(to, [*clips, narration]))


def write(to: Path, sources: Sequence[Path], more: bytes = b"") -> int:
    return to.write_bytes(b"|".join(each.read_bytes() for each in sources) + more)


async def fake_thumbnails(topic: str, written: Sequence[Scene], pictures: Sequence[Any], ctx: Context) -> Thumbnails:
    image = await ctx.save_file(b"\x89PNG\r\n\x1a\n" + ctx.path(pictures[0].image).read_bytes(), "variant-1.png")
    return Thumbnails(variants=[Thumbnail(image=image, text=text) for text in ("A", "B", "C")])


def patch_media(patched: pytest.MonkeyPatch) -> None:
    """Replace everything that renders or speaks."""
    patched.setattr(scenes, "speak_scene", fake_voice)
    patched.setattr(scenes, "render_still", fake_still)
    patched.setattr(film, "pad_sound", lambda sound, seconds: sound.read_bytes())
    patched.setattr(film, "join", fake_join)
    patched.setattr(film, "join_clips", fake_clips)
    patched.setattr(film, "draw_thumbnails", fake_thumbnails)


def make_services(folder: Path, **replaced: Any) -> Services:
    channel = LocalChannel(folder / "channel", url="/storyboard/channel/{id}")
    given: dict[str, Any] = {
        "files": create_file_store(FileSettings(home=folder)),
        "writer": FreeWriter(),
        "voices": {"espeak": Espeak()},
        "images": Painter(),
        "channel": lambda _: channel,
        "size": SIZE,
        "fps": 10,
    }
    return Services(**given | replaced)


@dataclass
class StoryApp:
    api: Api
    services: Services

    @property
    def client(self) -> Any:
        return self.api.client

    @property
    def writer(self) -> FreeWriter:
        assert isinstance(self.services.writer, FreeWriter)
        return self.services.writer

    @property
    def painter(self) -> Painter:
        assert isinstance(self.services.images, Painter)
        return self.services.images

    @property
    def channel(self) -> LocalChannel:
        channel = self.services.channel("")
        assert isinstance(channel, LocalChannel)
        return channel

    async def order(self, topic: str = TOPIC, **values: Any) -> str:
        """Order a story and return its id."""
        answer = await self.api.post("/stories", json={"topic": topic, **values})
        assert answer.status_code == 202, answer.text
        return str(answer.json()["id"])

    async def order_until_review(self, topic: str = TOPIC, **values: Any) -> str:
        """Order a story, do all work, and return its id."""
        story = await self.order(topic, **{"scenes": 3} | values)
        await self.work()
        assert (await self.show(story))["status"] == "ready_for_review"
        return story

    async def order_until_published(self, topic: str = TOPIC, **values: Any) -> str:
        story = await self.order_until_review(topic, **values)
        assert (await self.publish(story)).status_code == 202
        await self.work()
        assert (await self.show(story))["status"] == "published"
        return story

    async def show(self, story: str) -> dict[str, Any]:
        answer = await self.api.get(f"/stories/{story}")
        assert answer.status_code == 200, answer.text
        return dict(answer.json())

    async def publish(self, story: str, **values: Any) -> httpx2.Response:
        headers = {"headers": values.pop("headers", {})}
        return await self.api.post(f"/stories/{story}/publish", json=values, **headers)

    async def rerun_scene(self, story: str, scene: str, *parts: str) -> httpx2.Response:
        return await self.api.post(f"/stories/{story}/scenes/{scene}/rerun", json={"parts": parts})

    async def count_jobs(self, story: str) -> Counter[str]:
        """Count the current jobs by step."""
        return Counter(job.step for job in await self.client.runs.list_jobs(UUID(story)))

    async def list_revisions(self, story: str, step: str, item: str = "") -> list[tuple[int, str]]:
        """Return the revision and the state of each job of a step, oldest first, without kept results."""
        history = await self.client.runs.get_step_history(UUID(story), step, item)
        return [(each.revision, str(each.state)) for each in reversed(history) if each.reused_from is None]

    async def write_scripts(self, count: int | None = None) -> None:
        """Do what script workers do, until all scripts are written, or so many; a further claim is held."""
        async with self.api.sandbox.manual_worker() as worker:
            while claims := await worker.claim(1, queues=["generate_script"]):
                if claims[0].step == "generate_script" and count is not None:
                    if not count:
                        continue
                    count -= 1
                await worker.record_outcomes(await worker.attempt(claims))

    async def work(self) -> None:
        await self.api.sandbox.work(advance_clock=False)


@asynccontextmanager
async def running_story_app(database: Database, folder: Path, **replaced: Any) -> AsyncIterator[StoryApp]:
    services = make_services(folder, **replaced)
    async with an_api(database, application=make_app(services)) as api:
        yield StoryApp(api, services)
