"""A video with fast steps whose results the test chooses, behind the application's pages."""

from __future__ import annotations

import re
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from retoma import App, Client, Context, GiveUp, Pipeline, Retry
from retoma.records import Review
from retoma.reviews import Decision
from retoma.store.database import Database
from retoma.testing import NOON
from retoma_apps.media.models import Line
from retoma_apps.providers.youtube import LocalChannel
from retoma_apps.videos.models import (
    Assembly,
    Brief,
    Broll,
    Clip,
    FinalChoice,
    FinalFeedback,
    FootageFeedback,
    Narration,
    NarrationFeedback,
    Scene,
    Script,
    Source,
    Subtitles,
    Thumbnail,
    Thumbnails,
    Upload,
)
from retoma_apps.videos.pages.messages import LOCALE, STEP_LABELS
from retoma_apps.videos.pages.pages import REVIEW_ASIDES, REVIEW_TEMPLATES, STATIC, TEMPLATES, WATCH_URL, create_pages
from retoma_apps.videos.pages.reviews import get_review_values
from retoma_apps.videos.pipeline import video_batch
from retoma_apps.videos.services import Services
from tests.apps.videos.small_services import make_small_services
from tests.server.api import an_api
from tests.server.pages.visitor import Visitor, token_of

PNG = b"\x89PNG\r\n\x1a\n and more"
FILM = bytes(range(256)) * 8


def script(says: str) -> Script:
    return Script(
        title=f"Title {says}"[:100],
        scenes=[Scene(text=f"First {says}", visual=f"a coin {says}"), Scene(text="Second (half.", visual="a bank")],
        language="en",
        seconds=600,
        description=f"About {says}",
        tags=[f"tag {says}"[:60]],
        word_count=1850,
        sources=[
            Source(name=f"Bank {says}", url="https://bank.example/a", confidence=0.95, verified=True),
            Source(name="Rumour", url="javascript:alert(1)", confidence=0.2),
        ],
        facts_used=12,
        knowledge_reuse_rate=0.65,
    )


def make_canned_services(says: str) -> Pipeline:
    """`says` is part of every text that a provider or a model could return."""
    film = Pipeline("longform", Brief, retry=Retry(0))

    @film.step
    def knowledge_query() -> int:
        return 0

    @film.step
    def research(knowledge_query: int) -> int:
        return knowledge_query

    @film.step(after=research)
    def script_generation() -> Script:
        return script(says)

    film.review("script_review", of=script_generation)

    @film.step
    async def audio_generation(script_review: Script, *, ctx: Context) -> Narration:
        return Narration(
            audio=await ctx.save_file(b"RIFF", "narration.wav"),
            seconds=71.5,
            voice=f"espeak {says}",
            rate=1.1,
            lines=[Line(text=f"First {says}", start=0, end=2), Line(text="Second.", start=62.25, end=71)],
            scene_starts=[0, 62.25],
        )

    film.review("audio_review", of=audio_generation, feedback_form=NarrationFeedback)

    @film.step
    async def broll_search(audio_review: Narration, *, ctx: Context) -> Broll:
        kept = {"video": await ctx.save_file(FILM, "clip.mp4"), "thumbnail": await ctx.save_file(PNG, "clip.png")}
        clip = Clip(
            **kept,
            source=f"pexels {says}",
            query=f"coins {says}",
            seconds=35,
            own_seconds=12,
            relevance=0.85,
            scene=0,
            author=f"Eva {says}",
            url="https://pexels.example/1",
        )
        other = clip.model_copy(update={"scene": 1, "url": "javascript:alert(1)", "relevance": 0.2})
        return Broll(clips=[clip, other], total_seconds=70, audio_seconds=71.5, coverage=98)

    film.review("broll_review", of=broll_search, feedback_form=FootageFeedback)

    @film.step
    async def video_assembly(broll_review: Broll, *, ctx: Context) -> Assembly:
        video = await ctx.save_file(FILM, "film.mp4")
        return Assembly(video=video, seconds=612, width=1920, height=1080, size=380_000_000)

    @film.step(after=video_assembly)
    async def subtitle_gen(*, ctx: Context) -> Subtitles:
        return Subtitles(srt=await ctx.save_file(b"1", "a.srt"), vtt=await ctx.save_file(b"WEBVTT", "a.vtt"))

    @film.step(after="broll_review")
    async def thumbnail_gen(*, ctx: Context) -> Thumbnails:
        image = await ctx.save_file(PNG, "1.png")
        return Thumbnails(variants=[Thumbnail(image=image, text=f"{each} {says}") for each in ("5X", "RENDA", "CERTO")])

    film.review(
        "final_review",
        of=[video_assembly, thumbnail_gen, subtitle_gen, "script_review", "broll_review"],
        form=FinalChoice,
        send_back_to=[video_assembly, thumbnail_gen, broll_search, audio_generation, script_generation],
        feedback_form=FinalFeedback,
    )

    @film.step
    def upload(final_review: FinalChoice) -> Upload:
        if final_review.title == "refused":
            raise GiveUp(f"no such account {says}", "NO_ACCOUNT")
        return Upload(
            video_id="local-0123456789ab",
            url="/videos/channel/local-0123456789ab",
            channel="local",
            title=final_review.title or "Title",
            uploaded_at=NOON,
            thumbnail_refused=f"Not verified {says}",
        )

    return film


@dataclass
class VideoPages:
    """A user of the pages, and a manual worker."""

    visitor: Visitor
    channel: LocalChannel
    services: Services

    @property
    def client(self) -> Client:
        return self.visitor.client

    async def begin(self, topic: str = "Como investir", tenant: str = "financas", **values: Any) -> Any:
        return (await self.client.start("longform", {"topic": topic, **values}, tenant=tenant)).id

    async def review(self, step: str, **values: Any) -> Review:
        """Order a video, work until this review, and return it."""
        run = await self.begin(**values)
        while True:
            await self.work()
            (review,) = await self.client.reviews.list(run=run)
            if review.step == step:
                return review
            await self.approve(review)

    async def approve(self, review: Review, **options: Any) -> None:
        if review.step == "final_review":
            options["value"] = {"thumbnail": 1}
        await self.client.reviews.decide(review.id, Decision("approve", by="ana", **options))

    async def work(self) -> None:
        await self.visitor.api.sandbox.work()

    async def read(self, path: str, status: int = 200, language: str = "en") -> str:
        answer = await self.visitor.get(path, Accept_Language=language)
        assert answer.status_code == status, answer.text
        return str(answer.text)

    async def send(self, path: str, fields: dict[str, str], language: str = "en") -> Any:
        form = await self.visitor.get(path if path.startswith("/reviews") else "/videos/?new=1")
        hidden = {"csrf": token_of(form)} | dict(re.findall(r'name="(seen)" value="(\d+)"', form.text))
        return await self.visitor.post(path, hidden | fields, Accept_Language=language)


@asynccontextmanager
async def running_video_pages(
    database: Database, folder: Path, says: str = "plainly", **replaced_services: Any
) -> AsyncIterator[VideoPages]:
    channel = LocalChannel(folder / "channel", url=WATCH_URL)
    services = replace(make_small_services(folder), channel=lambda _: channel, **replaced_services)
    pipeline = make_canned_services(says)
    app = App(
        "videos",
        pipelines=[pipeline, video_batch],
        resources={"services": services},
        pages=create_pages(services),
        templates=TEMPLATES,
        static=STATIC,
        review_templates=REVIEW_TEMPLATES,
        review_asides=REVIEW_ASIDES,
        review_values=get_review_values,
        labels={step: label for step, label in STEP_LABELS.items() if step in {*pipeline.steps, *video_batch.steps}},
        locale=LOCALE,
        files=services.files,
    )
    here = {"address": "127.0.0.1", "host": "127.0.0.1:8765"}
    async with an_api(database, application=app, scopes=None, development=True, **here) as api:
        yield VideoPages(Visitor(api), channel, services)
