"""The pipeline of `retoma dev --demo`: a small film, made offline. Each step takes about a second and fills a template.

Each time a step's function starts, it adds a line to a file outside the database, so anyone can count the calls.
"""

from __future__ import annotations

import asyncio
import json
import os
from importlib.resources import files
from pathlib import Path
from typing import Literal
from uuid import UUID

from pydantic import BaseModel, Field

from retoma import App, Context, Items, Pipeline, Settings, private_files

TITLES = {"en": "The lighthouse that picked up again", "pt": "O farol que retomava"}
STORY: list[tuple[str, str, str]] = json.loads((files("retoma") / "demo_story.json").read_text(encoding="utf-8"))
"""Per scene: its picture, and its text in English and in Portuguese."""


class FilmInput(BaseModel):
    """`length` is the number of scenes; `pace` is the duration of a step in seconds."""

    language: Literal["en", "pt"] = "en"
    length: int = Field(12, ge=1, le=len(STORY))
    pace: float = Field(1.0, ge=0, le=60)


class Scene(BaseModel):
    number: int
    text: str


class Frame(BaseModel):
    picture: str
    text: str


class Film(BaseModel):
    title: str
    seconds: float
    frames: list[Frame]


demo = Pipeline("demo", inputs=FilmInput, title=lambda film: TITLES[film.language])


@demo.step
async def script(language: str, length: int, pace: float, *, ctx: Context) -> list[str]:
    await simulate_work(ctx, pace)
    return [english if language == "en" else portuguese for _, english, portuguese in STORY[:length]]


@demo.step
async def scenes(script: list[str], pace: float, *, ctx: Context) -> list[Scene]:
    await simulate_work(ctx, pace * 0.8)
    return [Scene(number=number, text=text) for number, text in enumerate(script, start=1)]


@demo.each(scenes, key="number")
async def narration(scene: Scene, pace: float, *, ctx: Context) -> float:
    """Return the duration of the narration in seconds."""
    await simulate_work(ctx, pace * (0.7 + scene.number % 3 * 0.2))
    return round(0.4 * len(scene.text.split()), 1)


@demo.each(scenes)
async def illustration(scene: Scene, pace: float, *, ctx: Context) -> str:
    await simulate_work(ctx, pace * (0.8 + scene.number % 4 * 0.15))
    return STORY[scene.number - 1][0]


@demo.step
async def film(
    script: list[str],
    narration: Items[float],
    illustration: Items[str],
    language: str,
    pace: float,
    *,
    ctx: Context,
) -> Film:
    await simulate_work(ctx, pace)
    frames = [Frame(picture=picture, text=text) for picture, text in zip(illustration, script, strict=True)]
    return Film(title=TITLES[language], seconds=round(sum(narration), 1), frames=frames)


app = App("demo", pipelines=[demo])


async def simulate_work(ctx: Context, seconds: float) -> None:
    log_effect(ctx)
    await asyncio.sleep(seconds)


def log_effect(ctx: Context) -> None:
    """Append a line to the run's file. A single append is atomic, even if other processes write or die meanwhile."""
    line = json.dumps({"step": ctx.step, "item": ctx.item, "attempt": ctx.attempt, "process": os.getpid()})
    path = effects_path(ctx.run)
    private_files.create_folder(path.parent)
    with open(path, "ab", buffering=0, opener=private_files.opener) as file:
        file.write(f"{line}\n".encode())


def effects_path(run: UUID) -> Path:
    return Settings().home / "demo" / f"{run}.jsonl"
