"""Pipelines whose steps do what a fault needs: wait until the test lets them go, block the loop, or count."""

from __future__ import annotations

import asyncio
import os
import time
from pathlib import Path

from bench.chaos import application as chaos
from bench.chaos import ledger
from bench.chaos.application import Given, Made, done
from bench.chaos.model import PIPELINES, Story
from retoma import App, Context, Pipeline, Retry

LONG = 1.5  # seconds, several times the silence after which the tests' workers are dead


def go(nonce: str) -> Path:
    """The file whose appearance lets the held steps of this run end."""
    return ledger.place().with_name(f"go-{nonce}")


held = Pipeline("held", inputs=Given, retry=Retry(0))


@held.step
async def waiting(nonce: str, *, ctx: Context) -> Made:
    token = ledger.began(ctx, os.getpid())
    while not go(nonce).exists():  # noqa: ASYNC110  (another process makes it)
        await asyncio.sleep(0.01)
    return done(ctx, token, nonce)


@held.step
async def afterwards(waiting: Made, *, ctx: Context) -> Made:
    return done(ctx, ledger.began(ctx, os.getpid()), waiting)


blocking = Pipeline("blocking", inputs=Given, retry=Retry(0))


@blocking.step
async def blocked(nonce: str, *, ctx: Context) -> Made:
    token = ledger.began(ctx, os.getpid())
    time.sleep(LONG)  # noqa: ASYNC251  (that is the mistake)
    return done(ctx, token, nonce)


def held_model(story: Story) -> None:
    story.step("afterwards", story.step("waiting", story.nonce))


def blocking_model(story: Story) -> None:
    story.step("blocked", story.nonce)


PIPELINES |= {"held": held_model, "blocking": blocking_model}
app = App("faults", pipelines=[*chaos.app.pipelines.values(), held, blocking])
