"""An application whose work people approve: texts, pictures, recordings, and a step that asks for help."""

from __future__ import annotations

import io
import math
import struct
import wave
from pathlib import Path
from uuid import UUID

from PIL import Image
from pydantic import BaseModel, Field

from retoma import App, Context, Items, NeedsReview, Pipeline, Retry, hours
from retoma.define.file import File
from retoma.errors import FeedbackNotSupported
from retoma.files import FileSettings, create_file_store
from retoma.records import Review
from retoma.reviews import Feedback
from retoma.testing import Sandbox
from tests.server.pages.catalogues import write_catalogue

TEXT = "Tesouro Selic rende quase o mesmo.\nA regra é combinada no dia.\nSem susto."

TRANSLATIONS = {
    "%(topic)s: a text has no music": "%(topic)s: um texto não tem música",
    "Score": "Pontuação",
    "Tone": "Tom",
    "Warm, dry …": "Quente …",
    "With song": "Cantado",
}


class Brief(BaseModel):
    topic: str = "Renda fixa em 2026"
    tone: str = "calm"
    words: int = 1850


class Draft(BaseModel):
    title: str = Field(min_length=1, max_length=100)
    text: str
    tags: list[str] = []
    score: float = 8.5
    passed: bool = True
    picture: File | None = None
    narration: File | None = None


class Choice(BaseModel):
    picture: int = Field(ge=1, description="Counted from 1.")
    title: str | None = Field(None, max_length=100)
    notify: bool = False


article = Pipeline("article", Brief, retry=Retry(0))


@article.step
def facts(topic: str) -> list[str]:
    return [f"fact about {topic}"]


def no_music(feedback: Feedback, topic: str) -> None:
    if "music" in feedback.text:
        raise FeedbackNotSupported("%(topic)s: a text has no music", topic=topic)


@article.step(feedback=no_music)
async def draft(topic: str, facts: list[str], words: int, *, ctx: Context) -> Draft:
    feedback = ctx.feedback
    ctx.charge("writer", "words", units=1, micros=12_300)
    text = TEXT if feedback is None else TEXT.replace("quase o mesmo", "menos que a poupança") + f"\n{feedback.notes}"
    return Draft(
        title=topic[:100],
        text=text,
        tags=["finanças", "renda fixa"],
        picture=await ctx.save_file(make_picture(), "capa.png"),
        narration=await ctx.save_file(make_tone(1.0 if feedback else 2.0), "narração.wav"),
    )


class FeedbackForm(BaseModel):
    tone: str | None = Field(
        None,
        max_length=20,
        description="Warm, dry …",
    )
    other_words: dict[str, str] = {}
    with_picture: bool = True
    speed: float | None = None
    ends: list[str] = []
    sung: bool | None = Field(None, title="With song")


article.review("draft_review", of=draft, send_back_to=[draft, facts], feedback_form=FeedbackForm, due=hours(2))


@article.step
def parts(draft_review: Draft) -> list[str]:
    return draft_review.text.splitlines()[:2]


@article.each(parts)
def image(part: str, tone: str) -> str:
    return f"{tone}: {part}"


@article.step
def page(draft_review: Draft, image: Items[str], words: int) -> str:
    if words < 0:
        raise NeedsReview("The text is shorter than it should be.", value="a short page", code="TOO_SHORT")
    return f"{draft_review.title}: {len(image)} images"


article.review("final_review", of=[draft, page], form=Choice, send_back_to=[image, page])


@article.step
def post(page: str, final_review: Choice) -> str:
    return f"{final_review.title or page} with picture {final_review.picture}"


article.group("images", [image])


def make_application(home: Path, **options: object) -> App:
    files = create_file_store(FileSettings(home=home, files_url=None))
    locale = options.pop("locale", None) or write_catalogue(home / "locale", TRANSLATIONS)
    return App("newsroom", pipelines=[article], files=files, locale=locale, **options)  # type: ignore[arg-type]


async def start_until_review(sandbox: Sandbox, **values: object) -> Review:
    """The review that a new run has come to."""
    return await work_until_review(sandbox, (await sandbox.client.start("article", values, tenant="channel")).id)


async def work_until_review(sandbox: Sandbox, run: UUID) -> Review:
    """Work until a review is open in this run."""
    await sandbox.work(advance_clock=False)
    (review,) = await sandbox.client.reviews.list(run=run)
    return review


def make_picture() -> bytes:
    made = io.BytesIO()
    Image.linear_gradient("L").resize((320, 180)).save(made, "PNG")
    return made.getvalue()


def make_tone(seconds: float = 2.0, rate: int = 8_000) -> bytes:
    made = io.BytesIO()
    with wave.open(made, "wb") as sound:
        sound.setnchannels(1)
        sound.setsampwidth(2)
        sound.setframerate(rate)
        waves = (int(8_000 * math.sin(number / 6)) for number in range(int(seconds * rate)))
        sound.writeframes(b"".join(struct.pack("<h", each) for each in waves))
    return made.getvalue()
